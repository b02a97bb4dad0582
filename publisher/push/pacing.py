"""When to write. Pure.

Sending every update at once costs a write per update and subscriber. The event loop then becomes the queue, and latency
grows with the number of streams. So the first update after a pause is sent at once, and while more updates arrive each
stream gets one write per gather interval.

A round is one read of the log and the writes that follow it. The cost of a round determines how many rounds fit into a
second. When rounds take more than a fixed part of the loop's time, the interval grows, so each message carries more and
the cost per update falls. An interval that leaves the loop most of its time is never longer than the present distance
of the rounds, so a publisher with little work does not wait.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RoundCost", "gather_interval"]

_LEAST_S: Final = 0.002  # with one stream: half of it adds to latency; below it reading costs more than sending
_PER_STREAM_S: Final = 0.00015  # about what building and writing one small message takes
_MOST_S: Final = 0.008
_MOST_LOADED_S: Final = 0.025
_SHARE: Final = 0.4  # the part of the loop's time that rounds may take


class RoundCost:
    """Processor seconds of the event loop's thread for one round, over the last few measurements. Pure.

    The cost of what subscribers send is not included, because their datamarkers and progress arrive by time, not by
    rounds. When it was included, acknowledgements of a thousand flows made the interval longer without becoming fewer.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._before: tuple[float, int] | None = None

    def measured(self, spent_s: float, rounds: int) -> None:
        """Called about ten times a second. ``spent_s``: processor time of the thread so far, without that for what
        subscribers sent; ``rounds``: their number so far.
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
