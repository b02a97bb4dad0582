"""Counts the differences that the comparison of a flow's tables finds, and builds the frames that report them. Pure.

Findings are reported when the next datamarker is acknowledged. Rows that are delivered again after a rollback are not
compared again, because the application may have later changes by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from subscriber_sdk.backfill import Key
from wormhole.model.verification import MOST_DIFFERENCES, MOST_EXTRA, Difference, DifferenceKind, TableVerification
from wormhole.wire.bounds import shortened
from wormhole.wire.v1 import push_pb2, update_pb2
from wormhole.wire.verification import KINDS

__all__ = ["Findings", "frames_of"]

_FRAME: Final = 256 << 10  # the most bytes of differences in one frame; publishers accept twice as much
_IN_FRAME: Final = 500
_LONGEST: Final = 64 << 10  # the most bytes of a difference that is named
_NOTHING: Final[Mapping[bytes, Key]] = MappingProxyType({})


@dataclass(slots=True)
class Findings:
    """The findings about one table in one epoch of a flow. Counts begin at 0 after each :meth:`report`.

    ``begun``: whether the end of one of the table's chunks arrived; nothing is reported before. ``trouble``: why some
    rows are not compared or not removed. ``given_up``: whether no further row is compared. ``unlisted``: whether the
    application's keys are not compared with the source's keys. ``extra_keys``: by canonical form, the application's
    keys that the publisher has to confirm. ``asked``: whether the publisher was asked to confirm them. ``over``:
    whether the end was reported.
    """

    table: str
    compared: int = 0
    not_compared: int = 0
    differs: int = 0
    missing: int = 0
    extra: int = 0
    repaired: int = 0
    removed: int = 0
    ended: bool = False
    confirm: bool = False
    begun: bool = False
    given_up: bool = False
    unlisted: bool = False
    trouble: str = ""
    extra_keys: Mapping[bytes, Key] = field(default_factory=lambda: _NOTHING)
    asked: bool = False
    over: bool = False
    differences: list[Difference] = field(default_factory=list)
    _named: int = 0  # the number of differences that were named, over all reports
    _changed: bool = False
    _gone: set[bytes] = field(default_factory=set)

    def add(self, found: Sequence[Difference], *, compared: int) -> None:
        """Count rows that were ``compared``, with the differences ``found``."""
        self._changed = True
        self.compared += compared
        differing = sum(one.kind is DifferenceKind.DIFFERS for one in found)
        self.differs += differing
        self.missing += len(found) - differing
        self._name(found)

    def leave_out(self, count: int) -> None:
        """Count rows or keys that were not compared."""
        if count:
            self._changed = True
            self.not_compared += count

    def end(self) -> None:
        """Note that no part of the table is left to compare."""
        self._changed = self.ended = True

    def end_with(self, extra: int, found: Sequence[Difference]) -> None:
        """Note that the application has ``extra`` surplus keys, the first of which are ``found``, and that no part of
        the table is left to compare."""
        self.extra += extra
        self._name(found)
        self.end()

    def ask(self, extra: int, keys: Mapping[bytes, Key], found: Sequence[Difference]) -> None:
        """Like :meth:`end_with`, but the publisher has to confirm these ``keys``, except for keys that are too long for
        a frame. A key is counted when it is :meth:`gone`. A key whose row is inserted meanwhile is no difference.
        """
        named = [one for one in found if len(one.key) <= _LONGEST]
        self.extra += extra - len(named)
        if len(named) < len(found):
            self.say(
                f"{len(found) - len(named)} keys that only the application holds are too long to be looked at. Next: "
                "remove them there"
            )
        if not named:
            self.end()
            return
        self._changed = self.confirm = self.asked = True
        self.extra_keys = keys
        self.differences.extend(named)

    def delivered(self, count: int) -> None:
        """Count differing rows that were delivered as a repair."""
        self._changed = True
        self.repaired += count

    def gone(self, found: Mapping[bytes, Difference]) -> None:
        """Count keys whose rows do not exist, and with which the application was called. Each key is counted once."""
        self._changed = True
        new = found.keys() - self._gone
        self._gone |= new
        self.extra += len(new)
        self.removed += len(new)
        self._name([found[form] for form in sorted(new)][: max(0, MOST_EXTRA - len(self.extra_keys))])

    def say(self, trouble: str) -> None:
        """Note why some rows are not compared or not removed. The first reason stays."""
        self._changed = True
        self.trouble = self.trouble or shortened(trouble)

    def report(self) -> TableVerification | None:
        """The findings since the last report; ``None`` if there are none."""
        if not (self._changed and self.begun) or self.over:
            return None
        found = TableVerification(
            self.table,
            self.compared,
            self.not_compared,
            self.differs,
            self.missing,
            self.extra,
            self.repaired,
            self.removed,
            tuple(self.differences),
            self.ended,
            self.trouble,
        )
        self.over = self.ended
        self.compared = self.not_compared = self.differs = self.missing = self.extra = self.repaired = self.removed = 0
        self.differences = []
        self.ended = self.confirm = self._changed = False
        return found

    def _name(self, found: Sequence[Difference]) -> None:
        room = max(0, MOST_DIFFERENCES - self._named)
        named = [one for one in found[:room] if len(one.key) <= _LONGEST]
        self._named += len(named)
        self.differences += named


def frames_of(found: TableVerification, *, confirm: bool) -> Iterator[push_pb2.Verified]:
    """The frames of a report. The first frame has the counts, and the last frame has the end."""
    frame = push_pb2.Verified(
        table=found.table,
        compared=found.compared,
        not_compared=found.not_compared,
        differs=found.differs,
        missing=found.missing,
        extra=found.extra,
        repaired=found.repaired,
        removed=found.removed,
        trouble=found.trouble,
    )
    size = 0
    for one in found.differences:
        message = push_pb2.Difference(
            kind=KINDS[one.kind], key=update_pb2.RowKey.FromString(one.key), columns=one.columns
        )
        size += message.ByteSize() + 8
        if len(frame.differences) >= _IN_FRAME or (size > _FRAME and frame.differences):
            yield frame
            frame, size = push_pb2.Verified(table=found.table), message.ByteSize() + 8
        frame.differences.append(message)
    frame.ended, frame.confirm = found.ended, confirm
    yield frame
