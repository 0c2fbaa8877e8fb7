"""Patches: unified diffs of text files, made and applied without an external program.

Strict: context must match byte for byte. A hunk belongs where its header says; when other text was
added above it, it may go where its old lines stand exactly once, and nowhere else.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from substrate.editable import BadEdit

_CONTEXT = 3  # lines
# Beyond this many lines, finding the smallest diff may take minutes: everything between the first
# and the last difference is replaced instead.
_MOST_LINES_COMPARED = 4000
_NO_NEWLINE = "\\ No newline at end of file"
_PREAMBLE = ("diff --git ", "index ", "new file mode ", "deleted file mode ")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")

Opcode = tuple[str, int, int, int, int]  # tag and line ranges, as difflib has them


@dataclass
class _Hunk:
    start: int  # index of the first old line; where nothing is old, of the line to insert before
    old: list[str] = field(default_factory=list)  # lines with their line ends
    new: list[str] = field(default_factory=list)


@dataclass
class _FilePatch:
    old: str | None  # path; None: a new file
    new: str | None  # path; None: a deleted file
    hunks: list[_Hunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        path = self.new or self.old
        assert path is not None
        return path


def make_patch(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """The unified diff that turns the files of `before` into those of `after`; "" if none differs.

    Raises BadEdit for a file that differs and is not UTF-8 text.
    """
    text = ""
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        text += f"--- a/{path}\n" if path in before else "--- /dev/null\n"
        text += f"+++ b/{path}\n" if path in after else "+++ /dev/null\n"
        old = _lines(path, before.get(path, b""))
        new = _lines(path, after.get(path, b""))
        for group in _groups(old, new):
            text += _hunk_text(group, old, new)
    return text


def apply_patch(files: Mapping[str, bytes], patch: str) -> dict[str, bytes]:
    """The files after the patch; `files` stays as it is.

    Raises BadEdit when the patch is no unified diff of text, or does not apply.
    """
    result = dict(files)
    for file in _parse(patch):
        path = file.path
        if file.old is None:
            if path in result:
                raise BadEdit(f"wanted to add {path}, found it there; patch it instead")
            inside = [name for name in result if path.startswith(f"{name}/")]
            inside += [name for name in result if name.startswith(f"{path}/")]
            if inside:
                raise BadEdit(f"wanted to add {path}, found {inside[0]} in its way; rename it")
        elif path not in result:
            raise BadEdit(f"wanted to patch {path}, found no such file among the editable ones")
        lines = _apply(path, _lines(path, result.pop(path, b"")), file.hunks)
        if file.new is not None:
            result[path] = "".join(lines).encode()
        elif lines:
            raise BadEdit(
                f"wanted to delete {path}, found lines in it that the patch does not have, the "
                f"first is {lines[0]!r}; make the patch from the file as it is"
            )
    return result


def patched_paths(patch: str) -> list[str]:
    """The paths that a patch changes, adds or deletes. Raises BadEdit when it is none."""
    return [file.path for file in _parse(patch)]


def _lines(path: str, content: bytes) -> list[str]:
    """Lines with their ends; only a newline ends a line, since nothing else does in a diff."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise BadEdit(f"wanted text files, found {path} that is not UTF-8: {error}") from error
    if "\0" in text:
        raise BadEdit(f"wanted text files, found a null byte in {path}; an edit carries text only")
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return lines if lines[-1] else lines[:-1]


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterator[list[Opcode]]:
    """Opcodes by hunk, with context."""
    if len(old) + len(new) <= _MOST_LINES_COMPARED:
        yield from difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT)
        return
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tails = range(shorter - head)
    tail = next((i for i in tails if old[-1 - i] != new[-1 - i]), shorter - head)
    above, below = min(head, _CONTEXT), min(tail, _CONTEXT)
    old_end, new_end = len(old) - tail, len(new) - tail
    yield [
        ("equal", head - above, head, head - above, head),
        ("replace", head, old_end, head, new_end),
        ("equal", old_end, old_end + below, new_end, new_end + below),
    ]


def _hunk_text(group: list[Opcode], old: Sequence[str], new: Sequence[str]) -> str:
    (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
    text = f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n"
    for tag, i, j, k, m in group:
        if tag == "equal":
            text += "".join(_marked(" ", line) for line in old[i:j])
        else:
            text += "".join(_marked("-", line) for line in old[i:j])
            text += "".join(_marked("+", line) for line in new[k:m])
    return text


def _range(start: int, end: int) -> str:
    # An empty range is counted from the line before it: that is how diff and git write it.
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}\n"


def _parse(patch: str) -> list[_FilePatch]:
    if not patch.endswith("\n"):
        raise BadEdit("wanted a patch whose last line is whole, found it cut off; add a newline")
    lines = patch.removesuffix("\n").split("\n")
    files: list[_FilePatch] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            files.append(_read_header(line, lines[at + 1]))
            at += 2
        elif line.startswith("@@ ") and files:
            hunk, at = _read_hunk(lines, at)
            files[-1].hunks.append(hunk)
        elif line.startswith(_PREAMBLE):
            at += 1
        else:
            raise BadEdit(
                f"wanted a unified diff, found {line!r} as line {at + 1} of the patch; "
                "no renames, binary files or words between the hunks"
            )
    paths = [file.path for file in files]
    if not files or len(set(paths)) < len(paths):
        raise BadEdit(f"wanted a patch with each file once, found {paths}; join their hunks")
    return files


def _read_header(old_line: str, new_line: str) -> _FilePatch:
    old, new = _read_path(old_line, "a/"), _read_path(new_line, "b/")
    if (old or new) is None or (old is not None and new is not None and old != new):
        raise BadEdit(f"wanted one file, found {old_line!r} and {new_line!r}; no renames")
    return _FilePatch(old, new)


def _read_path(line: str, prefix: str) -> str | None:
    path = line[4:].split("\t")[0]  # diff puts a tab and the time behind it
    if path == "/dev/null":
        return None
    if not path.startswith(prefix):
        raise BadEdit(f"wanted a path that starts with {prefix}, found {line!r}; as git writes it")
    return path.removeprefix(prefix)


def _read_hunk(lines: Sequence[str], at: int) -> tuple[_Hunk, int]:
    header = _HUNK.fullmatch(lines[at])
    if header is None:
        raise BadEdit(f"wanted `@@ -line,count +line,count @@`, found {lines[at]!r}")
    start = int(header[1])
    old_count, new_count = int(header[2] or 1), int(header[4] or 1)
    hunk = _Hunk(start if old_count == 0 else start - 1)
    last: list[list[str]] = []  # where the last line went, in case it turns out to end the file
    first, at = at, at + 1
    while at < len(lines):
        line = lines[at]
        done = len(hunk.old) == old_count and len(hunk.new) == new_count
        if line == _NO_NEWLINE and last and last[0][-1].endswith("\n"):
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        elif done:
            break
        elif line[:1] in (" ", "-", "+"):
            last = {" ": [hunk.old, hunk.new], "-": [hunk.old], "+": [hunk.new]}[line[:1]]
            for side in last:
                side.append(line[1:] + "\n")
        else:
            break
        at += 1
    if len(hunk.old) != old_count or len(hunk.new) != new_count or hunk.start < 0:
        raise BadEdit(
            f"wanted {old_count} old and {new_count} new lines below {lines[first]!r}, found "
            f"{len(hunk.old)} and {len(hunk.new)}; correct its header"
        )
    return hunk, at


def _apply(path: str, lines: list[str], hunks: list[_Hunk]) -> list[str]:
    result: list[str] = []
    done = shift = 0  # old lines used up; how far hunks lie below where their headers say
    for number, hunk in enumerate(hunks, start=1):
        place = _place(lines, hunk, done, shift)
        if place is None:
            stated = hunk.start + shift
            there = "".join(lines[stated : stated + len(hunk.old)])
            raise BadEdit(
                f"wanted, for hunk {number} of {path}, the lines {''.join(hunk.old)!r} at line "
                f"{hunk.start + 1} or in exactly one other place, found {there!r}; make the patch "
                "from the file as it is"
            )
        result += lines[done:place] + hunk.new
        done, shift = place + len(hunk.old), place - hunk.start
    result += lines[done:]
    if any(not line.endswith("\n") for line in result[:-1]):
        raise BadEdit(f"wanted lines that end in {path}, found one without newline before others")
    return result


def _place(lines: list[str], hunk: _Hunk, done: int, shift: int) -> int | None:
    """Index of the line where the hunk applies."""
    size = len(hunk.old)
    stated = hunk.start + shift
    if done <= stated <= len(lines) - size and lines[stated : stated + size] == hunk.old:
        return stated
    if size == 0:
        return None
    first = hunk.old[0]
    places = [
        place
        for place in range(done, len(lines) - size + 1)
        if lines[place] == first and lines[place : place + size] == hunk.old
    ]
    return places[0] if len(places) == 1 else None
