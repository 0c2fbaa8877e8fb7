"""What a completion is worth in the pocket world: see `training/pocket.py`."""

from training.pocket import reward

__all__ = ["reward"]
