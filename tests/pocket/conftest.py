"""The pocket world is imported as a fork sees it: its overlay lies beside the reference."""

import sys
from pathlib import Path

POCKET = Path(__file__).parents[2] / "substrate" / "library" / "pocket"

# For these imports alone: no other test should find the overlay's modules by accident.
_before = sys.path[:]
sys.path[:0] = [str(POCKET / "overlay"), str(POCKET / "pretraining"), str(POCKET)]
import make_data  # noqa: E402, F401
import mixture  # noqa: E402, F401
import pretrain  # noqa: E402, F401
import training.pocket  # noqa: E402, F401

sys.path[:] = _before
