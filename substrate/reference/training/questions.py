"""Questions that a generator wrote about documents, and the grading of answers to them.

    found = [read_question(completion, document, "choice", checker, count=count, maximum=1024)
             for completion in completions]       each a Question, or why it is none
    found = without_repeats(found, archive)
    counts = count_reasons(found)
    grade(question, response, checker)            True, False, or None: nothing is boxed

`read_question` is in `training/question_gates.py`. The right option is an index from the first
reading on; nothing ever looks for it by its text.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from training.verify_answers import FreeFormChecker, boxed, right_option

Kind = Literal["choice", "free"]
# Why a completion is no question.
Reason = Literal[
    "malformed",  # no JSON object of the form asked for
    "opt_out",  # an empty question: the document has too little
    "hidden_characters",  # or control characters, or a control token
    "no_solution",
    "answer_before_solution",
    "too_long",
    "invalid_options",  # too few, too many, empty, or not lettered in order
    "duplicate_options",
    "related_options",  # "all of the above", "both A and B": they are shuffled
    "options_in_question",  # listed in the question's text, with letters of their own
    "answer_not_an_option",
    "ambiguous_key",  # two options may be meant, or two are right
    "unreadable_reference",
    "mentions_document",
    "leaked_answer",
    "duplicate",  # of an earlier question
]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True)
class Question:
    """A question, and what is known of its answer."""

    kind: Kind
    text: str
    prompt: str  # what the solver reads
    options: tuple[str, ...]  # shuffled; a free-form question has none
    correct: int | None  # index of the right option
    reference: str | None  # the value that answers a free-form question
    solution: str  # the generator's, which it wrote before the answer
    document: str  # its id

    def __post_init__(self) -> None:
        """Raises ValueError where kind and answer do not agree."""
        choice = self.correct is not None and 0 <= self.correct < len(self.options)
        if self.kind != ("choice" if choice else "free") or choice == (self.reference is not None):
            raise ValueError(
                "wanted a choice with an index among its options, or a free-form question with a "
                f"reference, found {self.kind!r} with {len(self.options)} options, correct "
                f"{self.correct!r} and reference {self.reference!r}"
            )

    @property
    def id(self) -> str:
        """A hash of the text alone, whatever its case, spaces and final stop: a question whose
        options were changed is the same one.
        """
        text = " ".join(unicodedata.normalize("NFC", self.text).casefold().split())
        return hashlib.sha256(text.rstrip(" .:?!").encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Raises KeyError or TypeError for a row with other keys, ValueError for one that
        contradicts itself.
        """
        return cls(**{**row, "options": tuple(row["options"])})


def without_repeats(
    found: Iterable[Question | Reason], archive: set[str]
) -> list[Question | Reason]:
    """The same, but questions that the archive has, or that came before, are duplicates. The ids of
    the others are added to the archive.
    """
    kept: list[Question | Reason] = []
    for one in found:
        if not isinstance(one, Question):
            kept.append(one)
        elif one.id in archive:
            kept.append("duplicate")
        else:
            archive.add(one.id)
            kept.append(one)
    return kept


def count_reasons(found: Iterable[Question | Reason]) -> dict[str, int]:
    """How many are valid, and how many are refused for which reason."""
    counts = Counter({"valid": 0, **dict.fromkeys(REASONS, 0)})
    counts.update("valid" if isinstance(one, Question) else one for one in found)
    return dict(counts)


def grade(question: Question, response: str, checker: FreeFormChecker) -> bool | None:
    """Whether a response boxes the right answer; None where it boxes nothing."""
    if boxed(response) is None:
        return None
    if question.correct is not None:
        return right_option(response, question.options, question.correct) is True
    assert question.reference is not None
    return checker.right(response, question.reference)
