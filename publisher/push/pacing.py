"""Computes the gather interval between two writes of a stream. Pure.

Sending every update immediately costs a write per update and subscriber. Updates then wait for the event loop, and
latency grows with the number of streams. So the first update after a pause is sent immediately. While more updates
arrive, each stream gets one write per gather interval.

A round is one read of the log and the writes that follow it. When rounds take more than a fixed part of the loop's
time, the interval grows, so that each message has more updates and the cost per update falls. A publisher with little
work does not wait, because the interval is never longer than the present time between rounds.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RoundCost", "gather_interval"]

_LEAST_S: Final = 0.002  # for one stream; a shorter interval makes reading cost more than sending
_PER_STREAM_S: Final = 0.00015  # about the time to make and write one small message
_MOST_S: Final = 0.008
_MOST_LOADED_S: Final = 0.025
_SHARE: Final = 0.4  # the part of the loop's time that rounds may take


class RoundCost:
    """Processor seconds of the event loop's thread for one round, over the last few measurements. Pure.

    The cost of messages from subscribers is not included, because acks and progress arrive by time and not by rounds.
    When it was included, acks of a thousand flows made the interval longer, and their number did not fall.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._before: tuple[float, int] | None = None

    def measured(self, spent_s: float, rounds: int) -> None:
        """Called about ten times a second. ``spent_s``: processor time of the thread so far, without the time for
        messages from subscribers; ``rounds``: the number of rounds so far.
        """
        if self._before is not None:
            spent_before_s, rounds_before = self._before
            more = rounds - rounds_before
            cost = (spent_s - spent_before_s) / more if more else 0.0
            self.seconds = 0.5 * (self.seconds + cost)
        self._before = spent_s, rounds


def gather_interval(streams: int, loop_lag_s: float, round_s: float) -> float:
    """Seconds between two writes of a busy stream: up to 8 ms, growing with the streams and with the loop's lag; up to
    25 ms when rounds take too much of the loop's time. ``round_s``: processor time of the loop for one round.
    """
    if streams == 0:
        return _MOST_S
    idle = min(_MOST_S, _LEAST_S + _PER_STREAM_S * streams + loop_lag_s)
    return max(idle, min(_MOST_LOADED_S, round_s / _SHARE))
