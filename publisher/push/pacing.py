"""When to write: pure.

Sending every update at once costs a write per update and subscriber; the event loop then becomes the queue, and latency
grows with the number of streams. So the first update after a pause goes at once, and while updates keep coming each
stream gets one write per gather interval.
"""

from __future__ import annotations

__all__ = ["gather_interval"]

_LEAST_S = 0.002  # a lone stream: half of it is added latency on average, and below it reading costs more than sending
_PER_STREAM_S = 0.00015  # about what building and writing one small message takes
_MOST_S = 0.008


def gather_interval(streams: int, loop_lag_s: float) -> float:
    """Seconds between two writes of a busy stream: 0-8 ms, more with more streams and with a late event loop."""
    if streams == 0:
        return _MOST_S
    return min(_MOST_S, _LEAST_S + _PER_STREAM_S * streams + loop_lag_s)
