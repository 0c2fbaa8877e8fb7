"""The pages of Prefect's UI that a person reads, in a real browser."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from screenshots import CHROMIUM, main  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
]


def test_the_run_form_the_report_and_the_policy_diff_are_shown(tmp_path: Path) -> None:
    pictures = main(tmp_path)
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert 10_000 < os.path.getsize(picture) < 300_000, "README's pictures stay small"
