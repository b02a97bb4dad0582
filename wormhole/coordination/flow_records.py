"""Selects the flow records to write: a publisher reports all of its flows every second, and few have changed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from wormhole.coordination.port import FlowRecord

__all__ = ["WrittenRecords"]

_AGAIN: Final = 5


_Key = tuple[str, str]


class WrittenRecords:
    """The records that this process wrote last, by flow, during one unbroken contact. After a new contact they may not
    be stored any more.

    With each report a few unchanged records are written again, the oldest writes first. So a record that another client
    removed or replaced comes back.
    """

    def __init__(self) -> None:
        self._contact = -1
        self._written: dict[_Key, FlowRecord] = {}  # oldest write first

    def due(self, records: Mapping[_Key, FlowRecord], contact: int) -> list[_Key]:
        """The flows of ``records`` to write in the contact of this number."""
        if contact != self._contact:
            self._contact = contact
            self._written.clear()
        changed = [flow for flow, record in records.items() if self._written.get(flow) != record]
        unchanged = (flow for flow, record in self._written.items() if records.get(flow) == record)
        return [*changed, *islice(unchanged, _AGAIN)]

    def writes(self, flow: _Key) -> None:
        """A write of the flow's record begins: until :meth:`wrote` it is unknown whether the record is stored."""
        self._written.pop(flow, None)

    def wrote(self, flow: _Key, record: FlowRecord, contact: int) -> None:
        """The record was written in the contact of this number."""
        if contact == self._contact:
            self._written.pop(flow, None)
            self._written[flow] = record
