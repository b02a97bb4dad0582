"""The findings of comparing the tables of a flow, and the frames that report them. Pure.

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

_FRAME: Final = 256 << 10  # bytes of the differences in one frame; publishers take twice as much
_IN_FRAME: Final = 500
_LONGEST: Final = 64 << 10  # bytes of a difference that is named
_NOTHING: Final[Mapping[bytes, Key]] = MappingProxyType({})


@dataclass(slots=True)
class Findings:
    """What the comparison of one table found in one epoch of a flow. Counts are those since the last :meth:`report`.

    ``begun``: whether the end of one of its chunks arrived; nothing is reported before. ``trouble``: why something is
    not compared or not removed. ``given_up``: whether no further row is compared. ``unlisted``: whether the
    application's keys are not compared with the source's. ``extra_keys``: by canonical form, the application's keys
    that the publisher has to confirm. ``asked``: whether it was asked. ``over``: whether the end was reported.
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
    _named: int = 0  # differences, over all reports
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
        """No part of the table is left to compare."""
        self._changed = self.ended = True

    def end_with(self, extra: int, found: Sequence[Difference]) -> None:
        """The application has ``extra`` surplus keys, the first of which are ``found``. No part of the table is left to
        compare."""
        self.extra += extra
        self._name(found)
        self.end()

    def ask(self, extra: int, keys: Mapping[bytes, Key], found: Sequence[Difference]) -> None:
        """As :meth:`end_with`, but the publisher has to confirm these ``keys``, except for keys that are too long for
        it. A key is counted when it is :meth:`gone`. If its row is inserted meanwhile, it is no difference.
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
        """Count rows of the differences that were delivered."""
        self._changed = True
        self.repaired += count

    def gone(self, found: Mapping[bytes, Difference]) -> None:
        """The rows of these keys do not exist, and the application was called with the keys. Each is counted once."""
        self._changed = True
        new = found.keys() - self._gone
        self._gone |= new
        self.extra += len(new)
        self.removed += len(new)
        self._name([found[form] for form in sorted(new)][: max(0, MOST_EXTRA - len(self.extra_keys))])

    def say(self, trouble: str) -> None:
        """Note why something is not compared or not removed. The first reason stays."""
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
    """A report as frames. The counts are in the first, the end is in the last."""
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
