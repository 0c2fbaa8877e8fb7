"""A campaign's page in a real browser: it fits the window, and the browser runs nothing on it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chromium import opened
from screenshots import CHROMIUM

from policies.page import campaign_page
from tests.policies.test_page import CAMPAIGNS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(200),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]


@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_is_as_wide_as_its_window_and_has_its_style(tmp_path: Path, width: int) -> None:
    assert CHROMIUM is not None
    for name in ("all there is", "a hundred slots"):
        file = tmp_path / "page.html"
        file.write_text(campaign_page(CAMPAIGNS[name]), encoding="utf-8")
        with opened(CHROMIUM, width, 900) as page:
            page.open(file.as_uri(), until="Overview")
            assert page.evaluate("document.documentElement.scrollWidth") == width, name
            assert page.evaluate("getComputedStyle(document.querySelector('nav')).position") == (
                "sticky" if width == 1280 else "static"
            ), "the content security policy lets the style sheet in"


def test_markup_that_got_onto_a_page_would_not_run(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    whole = campaign_page(CAMPAIGNS["one round"])
    evil = (
        "<script>document.title = 'run'</script><style>body { margin: 77px }</style>"
        "<img src='data:,' onerror=\"document.title = 'run'\"><p style='margin: 77px'>there</p>"
    )
    titles = {}
    for name, text in (
        ("guarded", whole.replace("<header>", f"<header>{evil}")),
        ("open", whole.replace("<header>", f"<header>{evil}").replace("default-src", "x-src")),
    ):
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        with opened(CHROMIUM, 1280, 900) as page:
            page.open(file.as_uri(), until="there")
            margin = page.evaluate("getComputedStyle(document.body).marginTop")
            titles[name] = (page.evaluate("document.title"), margin)
    assert titles["guarded"] == ("demo-1f2e: campaign", "0px")
    assert titles["open"][0] == "run", "without the policy it would have"
