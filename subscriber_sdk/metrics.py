"""The metrics of a subscriber. :mod:`wormhole.metrics` lists the metrics of all programs.

:func:`samples` needs no metrics library, and may be called from any thread. docs/metrics.md shows its use with
prometheus-client.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from subscriber_sdk.running import Running
from wormhole import __version__
from wormhole.metrics import Sample
from wormhole.metrics import catalogue as c

__all__ = ["samples"]

_PER_SHARD: Final = (
    c.SUBSCRIBER_UPDATES,
    c.SUBSCRIBER_HANDLER_TIME,
    c.SUBSCRIBER_FAILURES,
    c.SUBSCRIBER_QUEUED,
    c.SUBSCRIBER_HELD,
    c.SUBSCRIBER_TARGET,
)


def samples(running: Running) -> list[Sample]:
    """All present samples."""
    labels = (running.options.application, running.id)
    streams, late = running._streams.traffic
    found = [
        Sample(c.SUBSCRIBER_BUILD, 1, (*labels, __version__)),
        Sample(c.SUBSCRIBER_STREAMS, streams, labels),
        Sample(c.SUBSCRIBER_LATE, late, labels),
    ]
    if running._door.trust is not None:
        ends, reloads = c.SUBSCRIBER_CERTIFICATE_ENDS, c.SUBSCRIBER_CERTIFICATE_RELOADS
        found += running._door.trust.samples(ends, reloads, *labels)
    states: Counter[str] = Counter()
    shards: dict[str, tuple[float, ...]] = {}
    for worker in running._shards.workers():
        states[worker.epoch.state] += 1
        # While an epoch ends, the next one of its shard may exist already.
        shard = worker.epoch.shard
        before = shards.get(shard, (0.0,) * len(_PER_SHARD))
        shards[shard] = tuple(a + b for a, b in zip(before, worker.figures, strict=True))
    found += [Sample(c.SUBSCRIBER_FLOWS, number, (*labels, state)) for state, number in states.items()]
    for shard, figures in shards.items():
        found += [Sample(metric, value, (*labels, shard)) for metric, value in zip(_PER_SHARD, figures, strict=True)]
    return found
