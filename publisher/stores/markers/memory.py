"""Datamarkers in memory, for tests and for commands that read a log without storing anything."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from publisher.stores.dead_letters.memory import Letters, MemoryDeadLetters
from publisher.stores.markers.rules import accepts, moved, raised, written
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker
from wormhole.ports.marker_store import UNASKED, FlowControl, FlowKey, MarkerWrite, StoredFlow

__all__ = ["MemoryMarkerStore", "MemoryMarkers"]


class MemoryMarkers:
    """The records of one log, and the store that has opened them. They outlive a store, like files on a disk."""

    def __init__(self) -> None:
        self.records: dict[FlowKey, StoredFlow] = {}
        self.letters: Letters = {}
        self.counts: dict[FlowKey, dict[str, bytes]] = {}
        self.lock = threading.Lock()
        self.owner: object = None


class MemoryMarkerStore:
    """The memory form of the port."""

    def __init__(self, markers: MemoryMarkers | None = None) -> None:
        self._markers = markers or MemoryMarkers()

    def open(self) -> None:
        with self._markers.lock:
            if self._markers.owner not in (None, self):
                raise MarkerStoreError(
                    "the marker store is in use in this process",
                    hint="close the other one first",
                    code="already-running",
                )
            self._markers.owner = self

    @property
    def owner(self) -> str:
        return ""

    def close(self) -> None:
        with self._markers.lock:
            if self._markers.owner is self:
                self._markers.owner = None

    def load(self, application: str | None = None) -> Mapping[FlowKey, StoredFlow]:
        with self._markers.lock:
            records = self._records()
            return {flow: stored for flow, stored in records.items() if application in (None, flow[0])}

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        with self._markers.lock:
            return self._records().setdefault(flow, StoredFlow(marker, epoch, start, control=control))

    def register_all(self, records: Mapping[FlowKey, StoredFlow]) -> Mapping[FlowKey, StoredFlow]:
        return {
            flow: self.register(flow, record.marker, record.start, record.epoch, record.control)
            for flow, record in records.items()
        }

    def raise_epoch(self, flow: FlowKey, above: int = 0) -> int:
        with self._markers.lock:
            records = self._records()
            records[flow] = raised(records[flow], above)
            return records[flow].epoch

    def raise_epochs(self, flows: Mapping[FlowKey, int]) -> Mapping[FlowKey, int]:
        with self._markers.lock:
            records = self._records()
            changed = {flow: raised(records[flow], above) for flow, above in flows.items() if flow in records}
            records.update(changed)
            return {flow: stored.epoch for flow, stored in changed.items()}

    def store(self, writes: Sequence[MarkerWrite]) -> tuple[FlowKey, ...]:
        refused: list[FlowKey] = []
        with self._markers.lock:
            records = self._records()
            for write in writes:
                stored = records.get(write.flow)
                if stored is not None and accepts(stored, write):
                    records[write.flow] = written(stored, write)
                    counts = self._markers.counts.setdefault(write.flow, {})
                    counts.update(write.counts)
                    for name in [name for name, page in write.counts.items() if not page]:
                        del counts[name]
                else:
                    refused.append(write.flow)
        return tuple(refused)

    def delivery_counts(self, flows: Collection[FlowKey]) -> Mapping[FlowKey, Mapping[str, bytes]]:
        with self._markers.lock:
            self._records()
            return {flow: dict(self._markers.counts.get(flow, {})) for flow in flows}

    def rewind(self, flow: FlowKey, marker: Datamarker, *, counts: bool = True) -> int:
        with self._markers.lock:
            records = self._records()
            records[flow] = moved(records[flow], marker, counts=counts)
            return records[flow].epoch

    def set_control(self, flow: FlowKey, control: FlowControl, was: FlowControl | None = None) -> bool:
        with self._markers.lock:
            records = self._records()
            as_expected = was in (None, records[flow].control)
            if as_expected:
                records[flow] = replace(records[flow], control=control)
            return as_expected

    def forget(self, flow: FlowKey) -> None:
        with self._markers.lock:
            self._records().pop(flow, None)
            self._markers.counts.pop(flow, None)

    def dead_letters(self) -> MemoryDeadLetters:
        return MemoryDeadLetters(self._markers.letters, self._markers.lock, self._records)

    def _records(self) -> dict[FlowKey, StoredFlow]:
        if self._markers.owner is not self:
            raise MarkerStoreError("the marker store is not open", hint="call open() first")
        return self._markers.records
