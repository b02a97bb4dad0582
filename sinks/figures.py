"""The counters of one sink: what its store confirmed and refused since the process began."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from wormhole.metrics import Sample
from wormhole.metrics import catalogue as c

__all__ = ["Figures"]


@dataclass(slots=True)
class Figures:
    """``written``: the number of records or rows that the store confirmed, and ``size`` their bytes, repeats included.
    ``refused``: the number of records that the store will never take. ``waited``: seconds of waiting for the store, of
    all shards together. ``held``: bytes of buffered incomplete transactions, by place. ``unverified``: shards and
    tables whose rows may lack values; ``None``: the store has no schema.
    """

    held: Callable[[], Mapping[str, int]] = dict
    written: int = 0
    size: int = 0
    refused: int = 0
    waited: float = 0.0
    unverified: set[tuple[str, str]] | None = None

    def wrote(self, number: int, size: int) -> None:
        """Count ``number`` records or rows of ``size`` bytes, which the store confirmed."""
        self.written += number
        self.size += size

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure the wait for the store within the block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.waited += time.monotonic() - began

    def samples(self, sink: str, subscriber: str) -> list[Sample]:
        """The metrics of the sink with this name in this process."""
        labels = (sink, subscriber)
        return [
            Sample(c.SINK_WRITTEN, self.written, labels),
            Sample(c.SINK_BYTES, self.size, labels),
            Sample(c.SINK_REFUSED, self.refused, labels),
            Sample(c.SINK_WAIT, self.waited, labels),
            *([] if self.unverified is None else [Sample(c.SINK_UNVERIFIED, len(self.unverified), labels)]),
            *(Sample(c.SINK_HELD, size, (*labels, place)) for place, size in self.held().items()),
        ]
