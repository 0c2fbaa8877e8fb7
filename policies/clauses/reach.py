"""C2, C3, C5 and C8: what a policy may reach, which is neither files, weights nor more budget."""

import re
import unicodedata
from collections.abc import Iterator

from policies.case import Case
from policies.draft import Path, Violation
from policies.policy import Constant, Overrides, SearchPolicy

# Sealed in every substrate, whatever its manifest adds. `dev`, `judge` and `out` are in no fork's
# editable part either.
ALWAYS_SEALED = (
    "evaluation/**",
    "data/**",
    "base/**",
    "dev/**",
    "judge/**",
    "out/**",
    "substrate.toml",
)


def c2_writes_only_the_next_policy(case: Case) -> Iterator[Violation]:
    """C2: it is the one version after its parent, which it names.

    Keys that no policy has are found before, by `policies.draft.foreign_keys`.
    """
    parent = case.parent
    if case.policy.version != parent.version + 1:
        reason = f"the next policy has version {parent.version + 1}"
        yield case.breach("C2", ("version",), reason)
    if case.policy.parent != parent.digest():
        reason = f"its parent is the policy in force, {parent.digest()}"
        yield case.breach("C2", ("parent",), reason)


def c3_what_measures_does_not_move(case: Case) -> Iterator[Violation]:
    """C3: the pinned digests are today's, and no override or knob names a sealed file."""
    facts = case.facts
    pins = (
        ("substrate", facts.substrate_sha256, facts.found_substrate_sha256),
        ("judge", facts.judge_sha256, facts.found_judge_sha256),
        ("constitution", facts.constitution_sha256, facts.found_constitution_sha256),
    )
    for what, pinned, today in pins:
        if pinned != today:
            reason = f"the {what} is not the pinned one: wanted {pinned}, found {today}"
            yield Violation("C3", "", reason)
    for path, file in _named_files(case.policy):
        if not _PLAIN_PATH.fullmatch(file):
            reason = "a file of the fork is named by a plain path, such as `recipes/sft.py`"
            yield case.breach("C3", path, reason)
        elif glob := _sealing_glob(file, facts.sealed):
            yield case.breach("C3", path, f"the file is sealed by `{glob}`")


def c5_promotes_only_the_policy(case: Case) -> Iterator[Violation]:
    """C5: every patch is a stored one, and no constant points at weights or files of a trial."""
    known = case.facts.rows.patches
    for path, patch in _patches(case.policy):
        if patch not in known:
            yield case.breach("C5", path, "no stored diff of this campaign has this hash")
    reason = "a constant is an instruction: it names no path, checkpoint, adapter or stored file"
    for path, value in _constants(case.policy):
        if isinstance(value, str) and _leads_to_weights(value):
            yield case.breach("C5", path, reason)


def c8_asks_for_no_more_than_the_caps(case: Case) -> Iterator[Violation]:
    """C8: external looks are not raised past the campaign's caps."""
    facts, before = case.facts, case.parent.budget.looks
    if case.policy.budget.looks > max(before, min(facts.looks_per_round, facts.looks_left)):
        reason = (
            f"the campaign allows {facts.looks_per_round} looks a round and has "
            f"{facts.looks_left} left; the parent asked for {before}"
        )
        yield case.breach("C8", ("budget", "looks"), reason)


# Plain ASCII segments that begin with no dot: no `..`, no hidden file, no look-alike letters.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
# Prompts: `/no_think` has no second slash, `/think and /no_think` has a space before it, what
# `$x/2$ is a half` begins with ends in a dollar sign, and `~5/10` is a number.
_ADDRESS = re.compile(
    r"/([^/]*[^/\s])?/|~(?!\d)[^/]*/|\$\{?\w+\}?/(?![^\s$]*\$)|[a-z]:/|[a-z][a-z0-9+.-]*://"
    r"|([^/]*/)*\.\.(/|$)"
)
_WEIGHTS = re.compile(
    r"(.*/)?(out|artifacts?|adapters?|checkpoints?)([-_]?\d+)?/.*"
    r"|.*/(\w+-)?(adapters?|checkpoints?)([-_]?\w+)?"
    r"|checkpoints?[-_]?\d+"
    r"|.*\.(safetensors|pt|pth|bin|ckpt|gguf|onnx|npz|npy|pkl|pickle|h5|tar|tgz)(\.\w{1,12}){0,3}"
    r"|.*[0-9a-f]{32}.*",
    re.DOTALL,
)


def _leads_to_weights(value: str) -> bool:
    # Compatibility letters and upper case are other spellings of one path.
    plain = unicodedata.normalize("NFKC", value).casefold().replace("\\", "/")
    plain = plain.strip("\"'`*? \t\r\n")
    return bool(_ADDRESS.match(plain) or _WEIGHTS.fullmatch(plain))


def _sealing_glob(file: str, sealed: tuple[str, ...]) -> str | None:
    for glob in (*ALWAYS_SEALED, *sealed):
        if _glob_regex(glob.casefold()).fullmatch(file.casefold()):
            return glob
    return None


def _glob_regex(glob: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` does not; what seals a folder seals what is in it."""
    spelled = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", glob.removesuffix("/**"))
    return re.compile("".join(spelled.get(t) or re.escape(t) for t in tokens) + "(?:/.*)?")


def _overrides(policy: SearchPolicy) -> Iterator[tuple[Path, Overrides]]:
    recipe = policy.standing_recipe
    yield ("standing_recipe", "overrides"), recipe.overrides
    for i, promotion in enumerate(recipe.provenance):
        path = ("standing_recipe", "provenance", i, "edit", "overrides")
        yield path, promotion.edit.overrides
    for i, replicate in enumerate(policy.replicates):
        yield ("replicates", i, "edit", "overrides"), replicate.edit.overrides


def _patches(policy: SearchPolicy) -> Iterator[tuple[Path, str]]:
    recipe = policy.standing_recipe
    for i, patch in enumerate(recipe.patches):
        yield ("standing_recipe", "patches", i), patch
    for i, promotion in enumerate(recipe.provenance):
        if promotion.edit.patch is not None:
            path = ("standing_recipe", "provenance", i, "edit", "patch")
            yield path, promotion.edit.patch
    for i, replicate in enumerate(policy.replicates):
        if replicate.edit.patch is not None:
            yield ("replicates", i, "edit", "patch"), replicate.edit.patch


def _named_files(policy: SearchPolicy) -> Iterator[tuple[Path, str]]:
    for path, overrides in _overrides(policy):
        for file in overrides:
            yield (*path, file), file
    for i, axis in enumerate(policy.axes):
        for j, knob in enumerate(axis.knobs):
            yield ("axes", i, "knobs", j, "file"), knob.file


def _constants(policy: SearchPolicy) -> Iterator[tuple[Path, Constant]]:
    """Every constant that a recipe may be given, with lists opened."""
    for path, overrides in _overrides(policy):
        for file, constants in overrides.items():
            for name, value in constants.items():
                yield from _leaves((*path, file, name), value)
    for i, axis in enumerate(policy.axes):
        for j, knob in enumerate(axis.knobs):
            if knob.kind == "choice":
                yield from _leaves(("axes", i, "knobs", j, "choices"), knob.choices)


def _leaves(path: Path, value: Constant) -> Iterator[tuple[Path, Constant]]:
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves((*path, i), item)
    else:
        yield path, value
