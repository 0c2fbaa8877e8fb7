"""The tools of a worker: every effect that it can have, each with a schema that code checks.

They reach its fork and nothing else. What they show is data in bounds; what goes wrong in them is
told to the model and ends nothing.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.files import (
    MOST_ENTRIES,
    MOST_HITS,
    list_folder,
    read_file,
    remove_file,
    search_files,
    write_file,
)
from agents.messages import Tool, ToolResult, ToolUse
from agents.quotation import Kept, line, plain, quote
from agents.shell import run_in_fork, spell
from agents.watch import watch_command, watch_edit, watch_patch, watch_path
from agents.worker import CapReached, Drafts, HandIn, WorkEnded, Workplace
from substrate.editable import BadEdit, check_paths, read_editable
from substrate.fork import Fork, linked_paths
from substrate.outcome import Outcome
from substrate.patch import apply_patch, patched_paths

MOST_SHOWN = 16_000  # characters of one result
MOST_LINES = 800  # of a file at once

_Path = Field(max_length=400, description="Path inside the fork, such as `recipes/sft.py`.")


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class List(_Arguments):
    """List a folder: files with their size, and which of them are sealed."""

    path: str = Field(default=".", max_length=400, description="Folder; `.` is the fork.")


class Read(_Arguments):
    """Read lines of a text file. Sealed files, too, can be read."""

    path: str = _Path
    first: int = Field(default=1, ge=1, description="First line.")
    lines: int = Field(default=400, ge=1, le=MOST_LINES, description="How many.")


class Search(_Arguments):
    """Find a text, to the letter, in the files below a folder."""

    text: str = Field(min_length=1, max_length=400, description="What to find; no pattern.")
    path: str = Field(default=".", max_length=400, description="Where.")


class Edit(_Arguments):
    """Replace a text that stands exactly once in a file."""

    path: str = _Path
    old: str = Field(min_length=1, description="The text as it stands, spaces and all.")
    new: str = Field(description="What to put there.")


class Patch(_Arguments):
    """Apply a unified diff with `--- a/PATH` and `+++ b/PATH` headers, whole or not at all."""

    diff: str = Field(min_length=1, description="The diff.")


class Write(_Arguments):
    """Write a whole file, new or in the place of what is there."""

    path: str = _Path
    content: str = Field(description="All of it.")


class Shell(_Arguments):
    """Run a shell command in the fork. It has no network, and everything it starts is ended."""

    command: str = Field(min_length=1, max_length=20_000, description="For `sh -c`.")


class RunRecipe(_Arguments):
    """Run the recipe as it is in the fork: `smoke`, a few steps, or `draft`, the whole budget.

    What it leaves is in `out/`: `run.log`, `metrics.jsonl`, `result.json`, the adapter.
    """

    kind: str = Field(pattern="^(smoke|draft)$", description="`smoke` or `draft`.")


class DevScore(_Arguments):
    """Score an adapter that a draft left in `out/` on the dev set. Few of these are allowed."""

    folder: str = Field(max_length=400, description="Its folder, such as `out/adapter`.")


class HandInWork(_Arguments):
    """End the work: the fork as it is now is the edit that counts. Nothing can be done after it."""

    hypothesis: str = Field(
        min_length=1, max_length=2000, description="What was changed, and why it should help."
    )
    notes: str = Field(
        default="", max_length=6000, description="What was tried, what failed, what is unsure."
    )


_TOOLS: dict[str, type[_Arguments]] = {
    "list": List,
    "read": Read,
    "search": Search,
    "edit": Edit,
    "patch": Patch,
    "write": Write,
    "shell": Shell,
    "run_recipe": RunRecipe,
    "dev_score": DevScore,
    "hand_in": HandInWork,
}


def _tool(name: str, model: type[_Arguments]) -> Tool:
    schema = model.model_json_schema()
    description = " ".join(str(schema.pop("description")).split())
    return Tool(name, description, schema)


TOOLS = tuple(_tool(name, model) for name, model in _TOOLS.items())


class BadUse(Exception):
    """A use of a tool that cannot be. The model is told."""


@dataclass
class Toolbox:
    """The tools at one workplace, and what came of them."""

    workplace: Workplace
    handed_in: HandIn | None = None
    cut: int = 0  # results that were longer than what was shown

    async def use(self, use: ToolUse) -> ToolResult:
        """The result of one use. Raises WorkEnded where infrastructure failed it."""
        try:
            arguments = _parse(use)
            if isinstance(arguments, Shell | RunRecipe | DevScore):
                return ToolResult(use.id, await self._ran(arguments))
            return ToolResult(use.id, await self._done(arguments))
        except (BadUse, CapReached) as error:
            said = str(error).replace(str(self.workplace.fork.root), "<fork>")
            return ToolResult(use.id, self._quoted(said, "error", keep="end"), is_error=True)

    async def _ran(self, arguments: Shell | RunRecipe | DevScore) -> str:
        """What came of running something."""
        if isinstance(arguments, RunRecipe):
            return await self._run(self._drafts(), is_smoke=arguments.kind == "smoke")
        if isinstance(arguments, DevScore):
            return await self._score(self._drafts(), arguments.folder)
        if "\0" in arguments.command:
            raise BadUse("wanted a command without NUL, found one with it")
        watch_command(self.workplace, arguments.command)
        argv, caps = ["/bin/sh", "-c", arguments.command], self.workplace.caps
        try:
            ran = await run_in_fork(
                self.workplace.fork, argv, seconds=caps.shell_seconds, level=self.workplace.level
            )
        except RuntimeError as error:
            raise WorkEnded(Outcome.INFRASTRUCTURE, f"shell: {error}") from error
        shown = self._quoted(ran.output, "output of the command", keep="end")
        return f"{spell(ran.ending)}\n{shown}"

    async def _done(self, arguments: _Arguments) -> str:
        """What came of a use that reads or changes files. Raises BadUse for what cannot be."""
        try:
            return await self._on_files(arguments)
        except (BadEdit, OSError, ValueError, RecursionError) as error:
            raise BadUse(str(error)) from error

    async def _on_files(self, arguments: _Arguments) -> str:
        fork = self.workplace.fork
        if isinstance(arguments, List | Read | Search):
            watch_path(self.workplace, arguments.path)
        match arguments:
            case List(path=path):
                items = [
                    f"{item.kind}{' sealed' if item.is_sealed else ''} {item.path} {item.size}"
                    for item in list_folder(fork, path)
                ]
                more = f", the first {MOST_ENTRIES}" if len(items) == MOST_ENTRIES else ""
                return self._quoted("\n".join(items), f"{path}{more}")
            case Read(path=path, first=first, lines=count):
                lines = _text_of(read_file(fork, path), path).splitlines()
                shown = "\n".join(lines[first - 1 : first - 1 + count])
                where = f"{path} lines {first}-{min(len(lines), first - 1 + count)} of {len(lines)}"
                return self._quoted(shown, where)
            case Search(text=text, path=path):
                hits = await asyncio.to_thread(search_files, fork, text, path)
                shown = "\n".join(f"{file}:{number}: {hit[:300]}" for file, number, hit in hits)
                more = f" (the first {MOST_HITS})" if len(hits) == MOST_HITS else ""
                return self._quoted(shown, f"search in {path}, {len(hits)} lines{more}")
            case Edit(path=path, old=old, new=new):
                text = _text_of(read_file(fork, path), path)
                if (found := text.count(old)) != 1:
                    raise BadUse(
                        f"wanted the old text exactly once in {path}, found it {found} times; "
                        "give more of the lines around it, as `read` shows them"
                    )
                watch_edit(self.workplace, path, old, new)
                write_file(fork, path, text.replace(old, new).encode())
                return f"{line(path, 400)} is changed."
            case Patch(diff=diff):
                watch_patch(self.workplace, diff)
                return f"changed: {line(', '.join(self._patch(diff)), 2000)}"
            case Write(path=path, content=content):
                watch_edit(self.workplace, path, _there(fork, path), content)
                write_file(fork, path, content.encode())
                return f"{line(path, 400)} is written."
            case HandInWork(hypothesis=hypothesis, notes=notes):
                self.handed_in = HandIn(plain(hypothesis), plain(notes))
                return "Handed in."
        raise AssertionError(f"a tool does something: {arguments!r}")

    def _drafts(self) -> Drafts:
        if self.workplace.drafts is None:
            raise BadUse("wanted to run something, found that nothing is run at this workplace")
        return self.workplace.drafts

    async def _run(self, drafts: Drafts, *, is_smoke: bool) -> str:
        record = await drafts.run(is_smoke)
        log = ""
        if record.outcome is not None:
            try:
                log = read_file(self.workplace.fork, "out/run.log").decode("utf-8", "replace")
            except OSError:
                log = "there is no log"
            log = self._quoted(log, "end of out/run.log", most=4000, keep="end")
            return f"{record.outcome.value}: {line(record.reason, 1000)}\n{log}"
        assert record.result is not None, "a run without an outcome delivered a result"
        result = record.result
        return (
            f"{result.state}: {result.rollouts} rollouts, {result.tokens} tokens, adapter in "
            f"{line(result.adapter or '', 400)}, checkpoints {line(str(result.checkpoints), 1000)}"
        )

    async def _score(self, drafts: Drafts, folder: str) -> str:
        measured = await drafts.score(folder)
        if measured.score is None:
            return f"no score, {measured.outcome.value}: {line(measured.reason, 1000)}"
        domains = ", ".join(
            f"{name} {part['value']:.4f} (n {part['n']})"
            for name, part in measured.score["domains"].items()
        )
        value, n = measured.score["value"], measured.score["n"]
        return f"dev {measured.score['metric']} {value:.4f} (n {n}): {domains}"

    def _patch(self, diff: str) -> list[str]:
        fork = self.workplace.fork
        files = fork.snapshot.manifest.files
        paths = list(patched_paths(diff))
        check_paths(files, paths)
        before = read_editable(
            fork.root, files, bound=set(linked_paths(fork.snapshot)), known=fork.prepared
        )
        after = apply_patch(before, diff)
        changed = [path for path in sorted(set(paths)) if before.get(path) != after.get(path)]
        for path in changed:
            if path in after:
                write_file(fork, path, after[path])
            else:
                remove_file(fork, path)
        return changed

    def _quoted(
        self,
        text: str,
        source: str,
        *,
        most: int = MOST_SHOWN,
        keep: Kept = "start",
    ) -> str:
        self.cut += len(text) > most
        return quote(text, source, most=most, keep=keep)


def _parse(use: ToolUse) -> _Arguments:
    """The arguments as the tool's schema has them. Raises BadUse, which names every fault."""
    model = _TOOLS.get(use.name)
    if model is None:
        raise BadUse(f"wanted one of the tools {sorted(_TOOLS)}, found {line(use.name, 80)!r}")
    try:
        return model.model_validate(use.arguments)
    except ValidationError as error:
        raise BadUse(f"{use.name}: {spell_faults(error)}") from error


def spell_faults(error: ValidationError) -> str:
    """What is wrong with data from a model, for the model: place, and what was wanted."""
    faults: list[Any] = error.errors(include_url=False, include_context=False)
    spelled = [
        f"{'.'.join(str(part) for part in fault['loc']) or 'the whole'}: {fault['msg']}, found "
        f"{_beginning(fault['input'])}"
        for fault in faults[:8]
    ]
    return "; ".join(spelled)


def _beginning(value: Any) -> str:
    if isinstance(value, str):
        return line(repr(value[:200]), 120)
    is_plain = value is None or isinstance(value, bool | int | float)
    return repr(value) if is_plain else f"a {type(value).__name__}"


def _there(fork: Fork, path: str) -> str:
    """The text of a file before it is written; empty where it is new, or cannot be read."""
    try:
        return read_file(fork, path).decode("utf-8", "replace")
    except (BadEdit, OSError):
        return ""


def _text_of(content: bytes, path: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadUse(f"wanted a text file, found that {path} is none: {error}") from error
