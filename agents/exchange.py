"""An exchange with a model that is asked for data: what it was asked, by hash, and its answer."""

import re

from agents.journal import cleaned, request_data
from agents.messages import ProviderFailure, Reply, Request, SpendCapReached
from policies.canonical import digest

_FENCED = re.compile(r"\s*```[a-zA-Z]*\s*\n(.*)\n\s*```\s*", re.DOTALL)


def prompt_sha256(request: Request) -> str:
    """sha256 (hex) of the canonical JSON of everything that a model was told, as journalled."""
    return digest(request_data(cleaned(request)))


def answer_text(reply: Reply) -> str:
    """The text of an answer, without the one code fence that may stand around all of it."""
    text = reply.message.text
    fenced = _FENCED.fullmatch(text)
    return fenced[1] if fenced and "```" not in fenced[1] else text


def ends_campaign(failure: ProviderFailure | SpendCapReached) -> bool:
    """Whether what kept a reply from coming keeps all others from coming: no try will help, or a
    cap wider than a trial is reached."""
    if isinstance(failure, ProviderFailure):
        return failure.permanent
    return failure.scope not in ("call", "trial")
