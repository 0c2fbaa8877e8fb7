"""A model: which provider serves it, under what name, and where."""

from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

Provider = Literal["anthropic", "openai"]
OWN_URLS: dict[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
}


class UnknownModel(ValueError):
    """What names a model does not."""


@dataclass(frozen=True)
class Model:
    """A model that a role talks to."""

    provider: Provider  # whose protocol its server speaks
    name: str
    base_url: str  # of the server; never holds a key

    @property
    def spec(self) -> str:
        return f"{self.provider}:{self.name}"

    @property
    def origin(self) -> str:
        """Scheme, host and port of its server."""
        return origin_of(self.base_url)

    @property
    def path(self) -> str:
        """What every path at its server begins with."""
        return urlsplit(self.base_url).path.rstrip("/")


def is_model(spec: str) -> bool:
    """Whether `spec` names a provider and a model, as `anthropic:MODEL` does."""
    provider, _, name = spec.partition(":")
    return provider in get_args(Provider) and bool(name.strip())


def read_model(spec: str, base_url: str = "") -> Model:
    """The model that `anthropic:MODEL` or `openai:MODEL` names; `base_url` empty: the provider's.

    `openai:` is any server that speaks Chat Completions, a local vLLM too; its base URL ends in
    `/v1` as a rule. Raises UnknownModel.
    """
    provider, _, name = spec.partition(":")
    if not is_model(spec):
        raise UnknownModel(
            f"wanted a model such as `anthropic:MODEL` or `openai:MODEL`, found {spec!r}; name the "
            "provider, a colon, and the model as the provider spells it"
        )
    provider = cast(Provider, provider)
    url = base_url or OWN_URLS[provider]
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnknownModel(
            f"wanted a base URL such as http://127.0.0.1:8000/v1, found {base_url!r}; give scheme "
            "and host"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        # Not quoted: it may be a key.
        raise UnknownModel(
            f"wanted a base URL of scheme, host and path, found more in that of {spec}; keys go "
            "into the environment or the keys file"
        )
    return Model(provider, name.strip(), url.rstrip("/"))


def origin_of(url: str) -> str:
    """Scheme, host and port in one spelling: a default port is left out."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    port = parts.port
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, default) else "")
