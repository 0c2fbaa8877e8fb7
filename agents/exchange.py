"""An exchange with a model that is asked for data: what it was asked, by hash, and its answer."""

from agents.journal import cleaned, request_data
from agents.messages import ProviderFailure, Reply, Request, SpendCapReached
from policies.canonical import digest

_FENCE = "```"


def prompt_sha256(request: Request) -> str:
    """sha256 (hex) of the canonical JSON of everything that a model was told, as journalled."""
    return digest(request_data(cleaned(request)))


def answer_text(reply: Reply) -> str:
    """The text of an answer, without the one code fence that may stand around all of it."""
    text = reply.message.text
    first, _, rest = text.strip().partition("\n")
    language = first.removeprefix(_FENCE).strip()
    is_opened = first.startswith(_FENCE) and (language.isalpha() or not language)
    within, closed = rest.removesuffix(_FENCE).rstrip(" \t"), rest.endswith(_FENCE)
    is_fenced = is_opened and closed and within.endswith("\n") and _FENCE not in within
    return within.strip() if is_fenced else text


def ends_campaign(failure: ProviderFailure | SpendCapReached) -> bool:
    """Whether what kept a reply from coming keeps all others from coming: no try will help, or a
    cap wider than a trial is reached."""
    if isinstance(failure, ProviderFailure):
        return failure.permanent
    return failure.scope not in ("call", "trial")
