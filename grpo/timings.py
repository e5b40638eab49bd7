"""Seconds of a step by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Timings:
    """Seconds by phase, under the field's names."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def phase(self, name: str, *, out_of: str | None = None) -> Iterator[None]:
        """Adds the time inside the block to a phase.

        out_of: the phase around it, in which this time does not count.
        """
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            if out_of is not None:
                self.seconds[out_of] = self.seconds.get(out_of, 0.0) - spent
