"""When to write: pure.

Sending every update at once costs a write per update and subscriber; the event loop then becomes the queue, and latency
grows with the number of streams. So the first update after a pause goes at once, and while updates keep coming each
stream gets one write per gather interval.

A round is one read of the log and the writes that follow it. What rounds cost decides how many of them fit into a
second: when they take the loop more than a part of its time, the interval grows, each message carries more, and the
cost per update falls. An interval that leaves the loop most of its time is never longer than the rounds already are
apart, so a publisher with little to do waits for nothing.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RoundCost", "gather_interval"]

_LEAST_S: Final = 0.002  # for a lone stream: half of it adds to latency; below it reading costs more than sending
_PER_STREAM_S: Final = 0.00015  # about what building and writing one small message takes
_MOST_S: Final = 0.008
_MOST_LOADED_S: Final = 0.025
_SHARE: Final = 0.4  # the part of the loop's time that rounds may take


class RoundCost:
    """Processor seconds of the event loop's thread for one round, over the last few measurements. Pure.

    What subscribers send is not meant: their datamarkers and progress come by time, not by rounds. Counted in, a
    thousand flows drew rounds apart for acknowledgements that came all the same.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._before: tuple[float, int] | None = None

    def measured(self, spent_s: float, rounds: int) -> None:
        """Called about ten times a second. ``spent_s``: what the thread has used so far, but for what subscribers
        sent; ``rounds``: how many there were so far.
        """
        if self._before is not None:
            spent_before_s, rounds_before = self._before
            more = rounds - rounds_before
            cost = (spent_s - spent_before_s) / more if more else 0.0
            self.seconds = 0.5 * (self.seconds + cost)
        self._before = spent_s, rounds


def gather_interval(streams: int, loop_lag_s: float, round_s: float) -> float:
    """Seconds between two writes of a busy stream: 0-8 ms, more with more streams and with a late event loop; up to
    25 ms when the loop could not serve more rounds. ``round_s``: processor time of the loop for one round.
    """
    if streams == 0:
        return _MOST_S
    idle = min(_MOST_S, _LEAST_S + _PER_STREAM_S * streams + loop_lag_s)
    return max(idle, min(_MOST_LOADED_S, round_s / _SHARE))
