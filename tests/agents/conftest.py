"""What tests of agents share: a broker without keys."""

from collections.abc import Iterator

import pytest

from agents.line import Line, open_line


@pytest.fixture(scope="session")
def line() -> Iterator[Line]:
    """A broker that has no key: it sends requests as they are."""
    with open_line(None) as opened:
        yield opened
