"""Keys: a generator's own answers to its questions, which it gives part by part."""

from collections.abc import Sequence

from training.questionbook import Questionbook
from training.questions import Question, Reason
from training.table import Table


def answer_own(
    table: Table, member: int, book: Questionbook, questions: Sequence[Question]
) -> list[Question | Reason]:
    """The questions with the keys that the member gives them, or why one has none."""
    parts: list[list[str]] = [[] for _ in questions]
    while True:
        prompts = [book.key_prompt(*pair) for pair in zip(questions, parts, strict=True)]
        wanted = [(n, prompt) for n, prompt in enumerate(prompts) if prompt is not None]
        if not wanted:
            return [book.with_key(*pair) for pair in zip(questions, parts, strict=True)]
        texts = table.write([(member, prompt) for _, prompt in wanted], seed=0, greedy=True)
        for (n, _), text in zip(wanted, texts, strict=True):
            parts[n].append(text.text)
