"""Seeds of everything random in a run, from the run's own: each step and purpose has its own.

So a run that goes on from a checkpoint draws what it would have drawn, and no generator's state has
to be kept; and one purpose's draws do not depend on how many another one made.
"""

import hashlib
import random


def seed_of(run: int, step: int, purpose: str) -> int:
    """63 bits that depend on all three."""
    digest = hashlib.sha256(f"{run} {step} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def dice_of(run: int, step: int, purpose: str) -> random.Random:
    """A generator of its own for this purpose at this step."""
    return random.Random(seed_of(run, step, purpose))
