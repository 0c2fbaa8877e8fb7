"""The pocket world is imported as a fork sees it: its overlay lies beside the reference."""

import sys
from pathlib import Path

POCKET = Path(__file__).parents[2] / "substrate" / "library" / "pocket"
sys.path[:0] = [str(POCKET / "overlay"), str(POCKET / "pretraining"), str(POCKET)]
