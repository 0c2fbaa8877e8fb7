"""The pocket world is imported as a fork sees it: its overlay lies beside the reference."""

import sys
from pathlib import Path

POCKET = Path(__file__).parents[2] / "substrate" / "library" / "pocket"

# The path is put back, so that other tests import the reference's modules where both have one.
_before = sys.path[:]
sys.path[:0] = [str(POCKET / "overlay"), str(POCKET / "pretraining"), str(POCKET)]
import make_data  # noqa: E402, F401
import mixture  # noqa: E402, F401
import pretrain  # noqa: E402, F401
import training.pocket  # noqa: E402, F401

sys.path[:] = _before
