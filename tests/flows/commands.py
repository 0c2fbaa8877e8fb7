"""The command line, started as a person starts it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPO = Path(__file__).parent.parent.parent
SEEDBED = [sys.executable, "-m", "flows.cli"]


def seedbed(
    home: Path,
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    columns: int = 120,
) -> subprocess.CompletedProcess[str]:
    """What `seedbed` with these arguments prints and returns, with its state in `home`."""
    return subprocess.run(
        [*SEEDBED, *arguments],
        cwd=REPO,
        env={**environment, "SEEDBED_HOME": str(home), "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        timeout=110,
    )
