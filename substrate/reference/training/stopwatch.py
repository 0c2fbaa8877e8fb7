"""A stopwatch: the wall time of a step by phase."""

import time


class Stopwatch:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # by phase
        self._since = time.monotonic()

    def lap(self, phase: str) -> None:
        """The time since the last lap was this phase's."""
        now = time.monotonic()
        self.seconds[phase] = round(self.seconds.get(phase, 0.0) + now - self._since, 4)
        self._since = now
