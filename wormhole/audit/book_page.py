"""One page of a flow's books: what was delivered and processed of one window of commit time, and what is wrong there.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wormhole.model.json_input import read_json
from wormhole.model.position import LogPosition
from wormhole.wire.tally import Tally
from wormhole.wire.v1 import push_pb2

__all__ = [
    "DELAY_LIMITS_S",
    "Counted",
    "Page",
    "Problem",
    "counted_from_messages",
    "counted_to_messages",
    "place_numbers",
]

DELAY_LIMITS_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
"""Upper limits of the delays that are told apart; one more has none."""


class Counted(NamedTuple):
    """Of one window: updates whose callback returned, updates that were set aside, the sum of the hashes of these, and
    how many of both came to nothing and have to come again.
    """

    updates: int = 0
    aside: int = 0
    aside_hash: int = 0
    in_vain: int = 0

    @property
    def all(self) -> int:
        """Processed or set aside."""
        return self.updates + self.aside


@dataclass(slots=True)
class Problem:
    """After ``begin``, up to and with ``end``, ``sent`` updates were sent and acknowledged, ``done`` of them processed
    or set aside.

    ``first``: of those that lack, how many were certainly sent for the first time; ``redone``: up to where everything
    was delivered again since.
    """

    begin: LogPosition
    end: LogPosition
    sent: int
    done: int
    first: int
    redone: LogPosition

    @property
    def missing(self) -> int:
        """Updates whose callback did not return."""
        return self.sent - self.done

    @property
    def is_repaired(self) -> bool:
        """Whether all of the range was delivered again, and every update of it was processed or set aside then."""
        return self.redone >= self.end

    def __str__(self) -> str:
        return (
            f"between {self.begin} and {self.end}: {self.sent} updates were sent, "
            f"{self.done} were processed or set aside"
        )

    def joined(self, other: Problem) -> Problem:
        """Both as one: the range is wider then, and repaired only as a whole."""
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        sums = (self.sent + other.sent, self.done + other.done, self.first + other.first)
        return Problem(begin, end, *sums, begin)


@dataclass(slots=True)
class Page:
    """``processed``, ``set_aside`` (with ``aside_hash``): repeats included. ``delays``: of delivered updates, how many
    were acknowledged so long after the window's end. ``lives``: what each subscriber's process told last, the latest
    one at the end. ``partly``: callbacks of what was not delivered as the log has it. ``ahead``: of ``processed`` and
    ``set_aside``, how many at most are of updates that are not delivered yet; ``stray``: the same, of updates that will
    not be, for the flow was moved past them. ``unheard``: how many callbacks at most ran in a life beyond what it told.
    """

    delivered: Tally = field(default_factory=Tally)
    processed: int = 0
    set_aside: int = 0
    aside_hash: int = 0
    delays: list[int] = field(default_factory=lambda: [0] * (len(DELAY_LIMITS_S) + 1))
    problems: list[Problem] = field(default_factory=list)
    lives: dict[int, Counted] = field(default_factory=dict)
    partly: int = 0
    ahead: int = 0
    unheard: dict[int, int] = field(default_factory=dict)
    stray: int = 0

    def to_bytes(self) -> bytes:
        """The stored form."""
        lives = [[life, *counted] for life, counted in self.lives.items()]
        problems = [
            [*map(place_numbers, (one.begin, one.end, one.redone)), one.sent, one.done, one.first]
            for one in self.problems
        ]
        given = [*self.delivered, self.processed, self.set_aside, self.aside_hash, self.delays, problems, lives]
        rest = [self.partly, self.ahead, list(self.unheard.items()), self.stray]
        return json.dumps([*given, *rest], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Page:
        """Inverse of :meth:`to_bytes`. Raises ``ValueError``."""
        try:
            updates, hash_, processed, aside, aside_hash, delays, problems, lives, partly, ahead, unheard, stray = (
                read_json(data)
            )
            counted = {int(life): Counted(int(u), int(s), int(h), int(v)) for life, u, s, h, v in lives}
            if len(delays) != len(DELAY_LIMITS_S) + 1:
                raise ValueError(f"{len(delays)} delays")
            found = [
                Problem(LogPosition(*begin), LogPosition(*end), int(sent), int(done), int(first), LogPosition(*redone))
                for begin, end, redone, sent, done, first in problems
            ]
            silent = {int(life): int(more) for life, more in unheard}
            tally, told = Tally(int(updates), int(hash_)), (int(processed), int(aside), int(aside_hash))
            return cls(tally, *told, delays, found, counted, int(partly), int(ahead), silent, int(stray))
        except (TypeError, ValueError) as error:
            raise ValueError(f"no page of a flow's books: {error}") from error


def counted_to_messages(counted: Mapping[int, Counted]) -> list[push_pb2.Processed]:
    """Counts by window, as the protocol has them."""
    return [
        push_pb2.Processed(
            window=window,
            updates=one.updates,
            set_aside=one.aside,
            set_aside_hash=one.aside_hash,
            in_vain=one.in_vain,
        )
        for window, one in counted.items()
    ]


def counted_from_messages(processed: Iterable[push_pb2.Processed]) -> dict[int, Counted]:
    """Inverse of :func:`counted_to_messages`."""
    return {one.window: Counted(one.updates, one.set_aside, one.set_aside_hash, one.in_vain) for one in processed}


def place_numbers(place: LogPosition) -> list[int]:
    """A place as it is stored."""
    return [place.incarnation, place.file, place.offset]
