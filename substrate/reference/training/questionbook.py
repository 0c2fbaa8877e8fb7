"""The questionbook: a folder of documents, the questions that a generator writes about them, and
verdicts on answers.

A generator reads a document and writes a question with its solution and key, see
`training/question_prompts.py`; the solver reads the question alone. The key is the generator's own
answer and is taken for true. That it is the same when the generator answers its question again,
still with the document before it, is asked for: a key that changes is a guess.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from training.chunks import Count
from training.documents import Cursor, Document, read_folder
from training.passage import Passage
from training.question_gates import read_question
from training.question_prompts import choice_request, example_request
from training.questions import Question, Reason, grade
from training.verify_answers import LETTERS, FreeFormChecker, boxed

FOLDER = Path("data/documents")  # relative to the fork's root
FEWEST_TOKENS, MOST_TOKENS = 200, 1900  # of a document; the authors' code has 2,048 at most
EXAMPLES = 4  # problems in place of a document: as many as INFUSER's authors show in that arm
LONGEST = 4096  # tokens of what the solver reads: the authors'


class Questionbook:
    """Documents and verdicts."""

    parts = 1  # of a key, at most

    def __init__(self, count: Count, folder: Path = FOLDER) -> None:
        """`count` gives a text's tokens. Raises NotADirectoryError without a folder, ValueError
        without documents in it.
        """
        self._count = count
        self._checker = FreeFormChecker()
        self._folder = read_folder(folder, count, minimum=FEWEST_TOKENS, maximum=MOST_TOKENS)
        self._documents = {document.id: document for document in self._folder.documents}
        self._cursor = Cursor(self._folder.documents, seed=0)
        self._examples: set[str] = set()  # problems that a question must not copy

    def __enter__(self) -> "Questionbook":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._checker.__exit__(kind, error, traceback)

    @property
    def documents(self) -> dict[str, Any]:
        """What was found in the folder, for metrics."""
        return {
            "read": len(self._folder.documents),
            "dropped": self._folder.dropped,
            "errors": list(self._folder.errors),
            "hidden": self._folder.hidden,
            "control_tokens": self._folder.control_tokens,
        }

    def take(
        self, number: int, dice: random.Random, drawn: int, near: Sequence[Question]
    ) -> list[Passage]:
        """The next documents after the `drawn` before."""
        self._cursor.drawn = drawn
        return [
            Passage(document.id, choice_request(document), topic=document.source)
            for document in self._cursor.take(number)
        ]

    def take_examples(
        self, number: int, dice: random.Random, examples: Sequence[Mapping[str, Any]]
    ) -> list[Passage]:
        """Some problems in place of each document (R-Few, Yu et al., arXiv 2512.02472)."""
        passages = []
        for _ in range(number):
            shown = [example["prompt"] for example in dice.sample(examples, EXAMPLES)]
            self._examples.update(shown)
            text = "\n\n".join(shown)
            name = hashlib.sha256(text.encode()).hexdigest()
            self._documents[name] = Document(name, text, "examples", self._count(text))
            passages.append(Passage(name, example_request(shown), "example"))
        return passages

    def read(
        self, passages: Sequence[Passage], completions: Sequence[str]
    ) -> list[Question | Reason]:
        """For each completion the question, or why it is none."""
        return [self._read(*pair) for pair in zip(passages, completions, strict=True)]

    def key_prompt(self, question: Question, parts: Sequence[str]) -> str | None:
        """What the generator reads to answer its own question, in one part; None after that."""
        document = self._documents[question.document]
        return None if parts else f"{document.text}\n\n{question.prompt}"

    def with_key(self, question: Question, parts: Sequence[str]) -> Question | Reason:
        """The question; "ambiguous_key" where the generator answers it otherwise now."""
        return question if grade(question, parts[0], self._checker) else "ambiguous_key"

    def judge(self, questions: Sequence[Question], completions: Sequence[str]) -> list[str]:
        """Whether each completion is "right", "wrong" or "malformed", by its question's key."""
        names = {True: "right", False: "wrong", None: "malformed"}
        pairs = zip(questions, completions, strict=True)
        return [names[grade(question, text, self._checker)] for question, text in pairs]

    def vote(self, question: Question, completions: Sequence[str]) -> list[str]:
        """The same for completions about one question, by the answer that most of them box."""
        answers = [boxed(text) for text in completions]
        if question.correct is not None:
            chosen = [answer and answer.strip(" ().")[:1].upper() for answer in answers]
            answers = [a if a and a in LETTERS[: len(question.options)] else None for a in chosen]
        counts = Counter(answer for answer in answers if answer is not None)
        most = max(counts, key=lambda answer: counts[answer]) if counts else None
        return [
            "malformed" if answer is None else "right" if answer == most else "wrong"
            for answer in answers
        ]

    def facts(self, question: Question) -> dict[str, Any]:
        """What is true of a question: nothing that could be known here."""
        return {"topic": self._documents[question.document].source}

    def _read(self, passage: Passage, text: str) -> Question | Reason:
        found = read_question(
            text,
            self._documents[passage.id],
            "choice",
            self._checker,
            count=self._count,
            maximum=LONGEST,
        )
        copied = isinstance(found, Question) and found.text in self._examples
        return "duplicate" if copied else found
