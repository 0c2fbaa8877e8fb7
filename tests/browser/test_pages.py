"""The pages of Prefect's UI that a person uses, in a real browser."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from screenshots import CHROMIUM, main

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]


def test_a_campaign_from_the_form_of_the_ui_completes_and_is_read_there(tmp_path: Path) -> None:
    for picture in main(tmp_path):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert 10_000 < picture.stat().st_size < 300_000, "the README's pictures stay small"
