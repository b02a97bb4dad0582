"""Delivery counts of one window of commit time, and the mismatches that were found there. Pure."""

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
    "Mismatch",
    "ProcessedCount",
    "WindowCounts",
    "place_numbers",
    "processed_from_messages",
    "processed_to_messages",
]

DELAY_LIMITS_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
"""Upper limits of the delays that are counted separately. Longer delays are counted together."""


class ProcessedCount(NamedTuple):
    """A subscriber's counts in one window: updates whose callback returned, updates that were set aside, and the sum of
    the hashes of the latter. The last counts are the updates of both kinds that were rolled back and come again.
    """

    updates: int = 0
    aside: int = 0
    aside_hash: int = 0
    rolled_back: int = 0

    @property
    def all(self) -> int:
        """Processed or set aside."""
        return self.updates + self.aside


def processed_to_messages(counts: Mapping[int, ProcessedCount]) -> list[push_pb2.Processed]:
    """Counts by window, in the protocol's form."""
    return [
        push_pb2.Processed(
            window=window,
            updates=one.updates,
            set_aside=one.aside,
            set_aside_hash=one.aside_hash,
            in_vain=one.rolled_back,
        )
        for window, one in counts.items()
    ]


def processed_from_messages(messages: Iterable[push_pb2.Processed]) -> dict[int, ProcessedCount]:
    """Inverse of :func:`processed_to_messages`."""
    return {one.window: ProcessedCount(one.updates, one.set_aside, one.set_aside_hash, one.in_vain) for one in messages}


@dataclass(slots=True)
class Mismatch:
    """A difference between sent and processed updates, from ``begin`` (exclusive) to ``end`` (inclusive).

    ``sent`` updates were sent and acknowledged, and ``processed`` of them were processed or set aside. ``first``: how
    many of the missing ones were certainly sent for the first time. ``redelivered_to``: the place up to which
    everything was delivered again since.
    """

    begin: LogPosition
    end: LogPosition
    sent: int
    processed: int
    first: int
    redelivered_to: LogPosition

    @property
    def missing(self) -> int:
        """Updates whose callback did not return."""
        return self.sent - self.processed

    @property
    def is_repaired(self) -> bool:
        """Whether all of the range was delivered again, and every update of it was then processed or set aside."""
        return self.redelivered_to >= self.end

    def __str__(self) -> str:
        return (
            f"between {self.begin} and {self.end}: {self.sent} updates were sent, "
            f"{self.processed} were processed or set aside"
        )

    def joined(self, other: Mismatch) -> Mismatch:
        """Join two mismatches into one. Its range is wider, and it is repaired only as a whole."""
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        sums = (self.sent + other.sent, self.processed + other.processed, self.first + other.first)
        return Mismatch(begin, end, *sums, begin)


@dataclass(slots=True)
class WindowCounts:
    """The counts of one window.

    ``processed``, ``set_aside`` (with ``aside_hash``): repeats included. ``delays``: how many delivered updates were
    acknowledged within each of :data:`DELAY_LIMITS_S` after the window's end. ``lives``: the last report of each
    subscriber's process, the latest one at the end. ``partial``: callbacks for updates of a partial replay, which are
    not counted as delivered. ``unacknowledged``: an upper limit of the updates in ``processed`` and ``set_aside`` that
    are not acknowledged yet. ``moved_past``: an upper limit of those that will never be acknowledged, because the
    flow was moved past them.
    """

    delivered: Tally = field(default_factory=Tally)
    processed: int = 0
    set_aside: int = 0
    aside_hash: int = 0
    delays: list[int] = field(default_factory=lambda: [0] * (len(DELAY_LIMITS_S) + 1))
    mismatches: list[Mismatch] = field(default_factory=list)
    lives: dict[int, ProcessedCount] = field(default_factory=dict)
    partial: int = 0
    unacknowledged: int = 0
    moved_past: int = 0

    def to_bytes(self) -> bytes:
        """The stored form. Earlier releases have a list before ``moved_past``, of callbacks that were not reported."""
        lives = [[life, *counted] for life, counted in self.lives.items()]
        mismatches = [
            [*map(place_numbers, (one.begin, one.end, one.redelivered_to)), one.sent, one.processed, one.first]
            for one in self.mismatches
        ]
        counts = [*self.delivered, self.processed, self.set_aside, self.aside_hash, self.delays, mismatches, lives]
        more = [self.partial, self.unacknowledged, [], self.moved_past]
        return json.dumps([*counts, *more], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WindowCounts:
        """Inverse of :meth:`to_bytes`. Raises ``ValueError``."""
        try:
            updates, hash_, *counts, delays, mismatches, lives, partial, unacknowledged, _, moved_past = read_json(data)
            processed, aside, aside_hash = map(int, counts)
            if len(delays) != len(DELAY_LIMITS_S) + 1:
                raise ValueError(f"{len(delays)} delays")
            return cls(
                Tally(int(updates), int(hash_)),
                processed,
                aside,
                aside_hash,
                delays,
                [
                    Mismatch(LogPosition(*begin), LogPosition(*end), int(sent), int(done), int(first), LogPosition(*to))
                    for begin, end, to, sent, done, first in mismatches
                ],
                {int(life): ProcessedCount(int(u), int(s), int(h), int(r)) for life, u, s, h, r in lives},
                int(partial),
                int(unacknowledged),
                int(moved_past),
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"no page of delivery counts: {error}") from error


def place_numbers(place: LogPosition) -> list[int]:
    """The stored form of a place."""
    return [place.incarnation, place.file, place.offset]
