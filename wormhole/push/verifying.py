"""A subscriber's reports on the verification of one flow: their bounds and their meaning. Pure.

A subscriber may report no more compared rows than it was sent, and no more repaired rows than differ. Only after the
end of a table's scan may it report that the table is complete, or that its extra keys have to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from wormhole.model.errors import ProtocolError
from wormhole.model.verification import MOST_EXTRA, Difference, DifferenceKind, TableVerification, VerifyMode
from wormhole.wire.bounds import check_count, check_name, shortened
from wormhole.wire.v1 import push_pb2
from wormhole.wire.verification import kind_of

__all__ = ["Verifying"]

_MOST_DIFFERENCES: Final = 1000  # differences in one frame
_MOST_COLUMNS: Final = 4096
_MOST_COUNT: Final = 1 << 53


@dataclass(slots=True)
class _Table:
    """One table. ``sent``: number of READ updates. ``scans``: how often the end of its scan was sent. ``found``: the
    sum of the reports.
    """

    found: TableVerification
    sent: int = 0
    scans: int = 0
    extra_keys: int = 0
    confirms: bool = False


class Verifying:
    """The verification of one flow in one epoch. ``work``: number of list entries that were read."""

    def __init__(self, mode: VerifyMode = VerifyMode.NONE) -> None:
        self.mode = mode
        self.work = 0
        self._tables: dict[str, _Table] = {}

    def sent(self, table: str, rows: int) -> None:
        """The flow was sent the end of a chunk of ``rows`` READ updates."""
        self._of(table).sent += rows

    def scanned(self, table: str) -> None:
        """The flow was sent the end of the table's scan."""
        self._of(table).scans += 1

    def take(self, frame: push_pb2.Verified, flow: str) -> tuple[TableVerification, bool]:
        """The results that the frame adds, and whether the subscriber requests that the table's extra keys are read.

        Raises :class:`~wormhole.model.errors.ProtocolError`.
        """
        if self.mode is VerifyMode.NONE:
            raise ProtocolError(f"verified: {flow} is not being verified")
        table = self._tables.get(frame.table)
        if table is None:
            raise ProtocolError(f"verified.table: {flow} was sent no rows of {shortened(frame.table)}")
        found = self._found(frame)
        table.extra_keys += sum(one.kind is DifferenceKind.EXTRA for one in found.differences)
        total = table.found.plus(found)
        self._check(table, total, frame, f"{flow}, table {frame.table}")
        table.found = replace(total, differences=(), trouble="")
        table.confirms = table.confirms or frame.confirm
        return found, frame.confirm

    def _of(self, name: str) -> _Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = _Table(TableVerification(name))
        return table

    def _found(self, frame: push_pb2.Verified) -> TableVerification:
        check_count(frame.differences, _MOST_DIFFERENCES, "verified.differences")
        self.work += len(frame.differences) + sum(len(one.columns) for one in frame.differences)
        return TableVerification(
            frame.table,
            frame.compared,
            frame.not_compared,
            frame.differs,
            frame.missing,
            frame.extra,
            frame.repaired,
            frame.removed,
            tuple(map(_difference, frame.differences)),
            frame.ended,
            shortened(frame.trouble),
        )

    def _check(self, table: _Table, total: TableVerification, frame: push_pb2.Verified, where: str) -> None:
        if table.found.ended:
            raise ProtocolError(f"verified: {where}: it ended already")
        if total.compared > table.sent:
            raise ProtocolError(f"verified.compared: {where}: {total.compared} rows; {table.sent} were sent")
        if total.differs + total.missing > total.compared:
            raise ProtocolError(f"verified.differs: {where}: more rows than were compared")
        if total.repaired > total.differs + total.missing or total.removed > total.extra:
            raise ProtocolError(f"verified.repaired: {where}: more rows than were not the same")
        if (total.repaired or total.removed or frame.confirm) and self.mode is not VerifyMode.REPAIR:
            raise ProtocolError(f"verified: {where}: nothing was to be repaired")
        if max(total.not_compared, total.extra) > _MOST_COUNT:
            raise ProtocolError(f"verified: {where}: no table has so many rows")
        if table.extra_keys > MOST_EXTRA:
            raise ProtocolError(f"verified.differences: {where}: more than {MOST_EXTRA} extra keys")
        if (frame.ended or frame.confirm) and table.scans != 1 + table.confirms:
            raise ProtocolError(f"verified.ended: {where}: its scan has not ended")
        if frame.confirm and not table.extra_keys:
            raise ProtocolError(f"verified.confirm: {where}: no extra key was named")
        if frame.confirm and (frame.ended or table.confirms):
            raise ProtocolError(f"verified.confirm: {where}: it ended, or was asked for already")


def _difference(given: push_pb2.Difference) -> Difference:
    kind = kind_of(given.kind)
    if kind is None:
        raise ProtocolError(f"verified.differences: kind {given.kind} is not known")
    if given.key.table or given.key.whole or not given.key.values:
        raise ProtocolError("verified.differences: a key has its values, and no table")
    if given.columns and kind is not DifferenceKind.DIFFERS:
        raise ProtocolError("verified.differences: columns of a row that only one side has")
    check_count(given.columns, _MOST_COLUMNS, "verified.differences.columns")
    columns = tuple(given.columns)
    check_name(max(columns, key=len, default=""), "verified.differences.columns")
    return Difference(kind, given.key.SerializeToString(deterministic=True), columns)
