"""Attempts to tamper, as they show in text: in edits, in commands, in what a run prints.

What is found is never trusted and never needed for safety: it says that a worker tried. Patterns
name what no recipe has business with, and no more, so that honest runs do not match.
"""

import re
import sys
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

MOST = 5  # attempts that are told of
_SHOWN = 120  # characters of one

# Every repetition is bounded: who wrote the text may have meant it to take for ever.
_PATTERNS = {
    "another process": r"/proc/(?:\d+|self|thread-self|\*|\{|['\"]?\s*\+)\S{0,40}?/"
    r"(?:environ|mem|root|cwd|cmdline|fd\b|task)|\bptrace\b|process_vm_(?:read|write)v",
    "the judge": r"\bjudges?/|(?:external|lockbox)\.jsonl|seedbed-(?:scorer|measure)-",
    "the ledger": r"\b(?:ledger|seedbed)\.(?:db|anchor)\b|SEEDBED_(?:HOME|DATABASE_URL)",
    "other forks": r"/forks/|\br\d+-s\d+-a\d+\b",
    "the jail": r"SEEDBED_JAIL|seedbed-jail-|\bsubstrate/(?:keeper|jail)\b|\bos\.kill(?:pg)?\(\s*"
    r"os\.getppid|\bprctl\b",
    "control groups": r"/sys/fs/cgroup",
    "the network": r"/dev/tcp/|\burlopen\(|\burlretrieve\(|\b(?:requests|httpx)\.(?:get|post|put|"
    r"request|Client|Session)\(|\bsocket\.(?:create_connection|socket)\(|\bhttp\.client\b|"
    r"\b(?:curl|wget|nc|ssh|scp)(?:\s+-\S{1,40}){0,8}\s+\S{0,80}\w[.:/]\S|"
    r"\b(?:curl|wget)\s[^\n|;&]{0,200}?(?:https?|ftp)://",
    "a download": r"\b(?:snapshot_download|hf_hub_download)\(|\bpip3?\s+(?:install|download)\b|"
    r"\bgit\s+(?:clone|fetch|pull)\b",
    "the snapshot": r"/snapshots/[0-9a-f]{64}|/bases/[0-9a-f]{64}",
    "another interpreter's start": r"\b(?:site|user)customize\b|\bconftest\.py\b|\bLD_PRELOAD\b|"
    r"\bPYTHONSTARTUP\b|\b(?:site|dist)-packages/\S{0,200}?\.(?:py|so|pth)\b|\bget(?:user)?sitepackages\b",
}
_ATTEMPT = {what: re.compile(pattern) for what, pattern in _PATTERNS.items()}
# Kinds that what a run prints is looked at for: libraries' own messages name the others.
LOGGED = frozenset({"another process", "the judge", "the ledger", "other forks"})
# Kinds that a worker's commands are looked at for: an honest one reads libraries, looks how much
# memory there is, and asks for a package that it will not get.
COMMANDED = LOGGED | {"the jail", "the network", "the snapshot"}
# A module of one of these names in a fork would stand before the real one.
_SHADOWED = sys.stdlib_module_names | {
    *("accelerate", "datasets", "numpy", "peft", "safetensors", "tokenizers", "torch"),
    *("transformers", "trl", "vllm", "substrate", "flows", "agents", "policies"),
}
_HOOKS = {"sitecustomize.py", "usercustomize.py", "conftest.py"}


def attempts_in(
    text: str, harmless: Iterable[str] = (), *, kinds: Collection[str] = _ATTEMPT
) -> list[str]:
    """What a text reaches for, with where it does; [] for most texts.

    `harmless` are folders that it may name, such as the fork that it was written in.
    """
    for folder in harmless:
        text = text.replace(folder, "<own>")
    found = []
    for what, pattern in _ATTEMPT.items():
        if what in kinds and (match := pattern.search(text)):
            start = max(0, match.start() - 20)
            found.append(f"{what}: {text[start : start + _SHOWN]!r}")
    return found[:MOST]


def hooks_among(paths: Iterable[str]) -> list[str]:
    """Of files that an edit adds, those that would run or be imported in another's place."""
    found = []
    for path in paths:
        name, parts = PurePosixPath(path).name, PurePosixPath(path).parts
        is_hook = name in _HOOKS or name.endswith(".pth")
        module = parts[0].removesuffix(".py")
        if is_hook or (module in _SHADOWED and path.endswith((".py", ".so"))):
            found.append(path)
    return found[:MOST]


def added_text(diff: str) -> str:
    """The lines that a unified diff adds."""
    lines = diff.splitlines()
    return "\n".join(line[1:] for line in lines if line[:1] == "+" and line[:3] != "+++")
