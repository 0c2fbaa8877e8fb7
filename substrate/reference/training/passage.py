"""A passage: what a generator reads to write questions about one document."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Passage:
    """A document as a prompt. Kind and topic are known of documents that were made up, and say what
    a good generator would find out: they are for checks only, nothing is trained on them.
    """

    id: str
    prompt: str  # of the generator; it may end in the beginning of the answer that is wanted
    kind: str = ""
    topic: str = ""
    end: str | None = None  # the token that ends a question; None: where the model ends its turn
