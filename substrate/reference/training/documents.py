"""Documents: what a folder of Markdown and text files has for questions to be written from, and a
cursor that draws them.

    folder = read_folder(Path("documents"), count, minimum=200, maximum=2048)
    cursor = Cursor(folder.documents, seed=job.seed)
    batch = cursor.take(128)

A document is a chunk of a file, see `training/chunks.py`, without what hides in it, see
`training/hidden_text.py`. A file or chunk that is of no use is dropped and counted; none stops the
others from being read.
"""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.chunks import Count, cut
from training.hidden_text import without_hidden
from training.seeds import dice_of

ENDINGS = (".md", ".markdown", ".txt")
LARGEST_BYTES = 64 * 2**20  # of a file
# Why something was dropped: a file (up to "empty"), or a chunk.
DROPPED = (
    "other_ending",
    "no_file",  # a link, a pipe
    "unreadable",  # the system refuses
    "too_large",
    "encoding",  # not UTF-8
    "empty",
    "short",
    "duplicate",  # the text of an earlier document
)


@dataclass(frozen=True)
class Document:
    id: str  # a hash of the text
    text: str
    source: str  # the file, relative to the folder
    tokens: int  # of the text
    headings: tuple[str, ...] = ()  # that stand over the text's beginning in the file


@dataclass(frozen=True)
class Folder:
    """What was found in a folder."""

    documents: tuple[Document, ...]  # in the order of their files
    dropped: dict[str, int]  # by reason, all of DROPPED
    errors: tuple[str, ...]  # one for each file that could not be read
    hidden: int  # characters removed
    control_tokens: int  # broken up


def read_folder(folder: Path, count: Count, *, minimum: int, maximum: int) -> Folder:
    """All documents of a folder and those inside it, of `minimum` to `maximum` tokens each.

    Files end in .md, .markdown or .txt and are UTF-8, with a byte order mark or without. One that
    is not is dropped, with an error that says why. Links are not followed.

    Raises NotADirectoryError without a folder, and ValueError unless 1 <= minimum <= maximum.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"wanted a folder of documents, found {str(folder)!r}; make it")
    documents: dict[str, Document] = {}
    dropped = Counter[str](dict.fromkeys(DROPPED, 0))
    errors: list[str] = []
    hidden = control_tokens = 0
    for path in _entries(folder):
        source = _name(path, folder)
        try:
            text = _text(path)
        except _Useless as useless:
            dropped[useless.reason] += 1
            if useless.error:
                errors.append(f"{source}: {useless.error}")
            continue
        cleaned = without_hidden(text)
        hidden += cleaned.hidden
        control_tokens += cleaned.control_tokens
        if not cleaned.text.strip():
            dropped["empty"] += 1
            continue
        for chunk in cut(cleaned.text, count, minimum=minimum, maximum=maximum):
            text = chunk.text.strip("\n").rstrip()
            name = _hash(text)
            if name in documents:
                dropped["duplicate"] += 1
            elif (tokens := count(text)) < minimum:
                dropped["short"] += 1
            else:
                documents[name] = Document(name, text, source, tokens, chunk.headings)
    return Folder(tuple(documents.values()), dict(dropped), tuple(errors), hidden, control_tokens)


class Cursor:
    """Draws documents without end, in each epoch all of them in an order of its own.

    The order depends on the seed and on what the documents say, not on their files. A draw across
    the end of an epoch may have a document twice.
    """

    def __init__(self, documents: Sequence[Document], seed: int) -> None:
        """Raises ValueError without documents."""
        if not documents:
            raise ValueError(
                "wanted documents to draw from, found none; see what was dropped from their folder"
            )
        self.drawn = 0  # documents, all in all
        self._documents = sorted(documents, key=lambda document: document.id)
        self._seed = seed
        self._epoch = -1
        self._order: list[Document] = []

    def take(self, number: int) -> list[Document]:
        """The next documents."""
        taken = []
        for place in range(self.drawn, self.drawn + number):
            epoch, within = divmod(place, len(self._documents))
            if epoch != self._epoch:
                dice = dice_of(self._seed, epoch, "documents")
                self._order = dice.sample(self._documents, len(self._documents))
                self._epoch = epoch
            taken.append(self._order[within])
        self.drawn += number
        return taken

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, for JSON."""
        return {"drawn": self.drawn, "documents": self._contents()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where another cursor of this seed was. Raises ValueError when it had other
        documents.
        """
        if state["documents"] != self._contents():
            raise ValueError(
                f"wanted the documents that the run began with, found {len(self._documents)} of "
                "which some are others; restore the folder, or start the run anew"
            )
        self.drawn = state["drawn"]

    def _contents(self) -> str:
        return _hash(" ".join(document.id for document in self._documents))


class _Useless(Exception):
    """This file has no text for us."""

    def __init__(self, reason: str, error: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


def _entries(folder: Path) -> Iterator[Path]:
    """Everything in a folder, by name; of the folders only those that cannot be listed."""
    refused: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=refused.append):
        folders.sort()
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from (Path(place) / name for name in sorted(files + links))
    yield from (Path(str(error.filename)) for error in refused)


def _name(path: Path, folder: Path) -> str:
    """A path as text, whatever bytes it has."""
    return os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "backslashreplace")


def _text(path: Path) -> str:
    """The text of a file. Raises _Useless."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            raise _Useless("unreadable", "wanted to list it, found no way; change its permissions")
        if not stat.S_ISREG(mode):
            raise _Useless("no_file")
        if path.suffix.lower() not in ENDINGS:
            raise _Useless("other_ending")
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise _Useless(
            "unreadable", f"wanted to read it, found {error.strerror}; change its permissions"
        ) from error
    if len(data) > LARGEST_BYTES:
        raise _Useless("too_large", f"wanted at most {LARGEST_BYTES} bytes, found more; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise _Useless(
            "encoding",
            f"wanted UTF-8, found byte 0x{data[wrong.start]:02x} at {wrong.start}; save it as "
            "UTF-8",
        ) from wrong


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
