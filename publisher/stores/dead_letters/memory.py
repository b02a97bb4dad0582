"""Parked updates in memory, for use with datamarkers in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from publisher.stores.dead_letters.rules import check_epoch
from wormhole.ports.dead_letters import DeadLetter, Parcel, in_order, marked
from wormhole.ports.marker_store import FlowKey, StoredFlow

__all__ = ["Letters", "MemoryDeadLetters"]

Letters = dict[FlowKey, dict[str, tuple[DeadLetter, Parcel]]]


class MemoryDeadLetters:
    """The memory form of the port.

    ``records``: returns the flows of the marker store; raises if the store is not open. ``lock``: guards the letters
    and the records.
    """

    largest = 128 << 20
    most_bytes = 64 << 20

    def __init__(
        self, letters: Letters, lock: threading.Lock, records: Callable[[], Mapping[FlowKey, StoredFlow]]
    ) -> None:
        self._letters = letters
        self._lock = lock
        self._records = records

    def load(self, flow: FlowKey) -> tuple[DeadLetter, ...]:
        with self._lock:
            self._records()
            return in_order(letter for letter, _ in self._letters.get(flow, {}).values())

    def parked(self, flows: Collection[FlowKey]) -> Collection[FlowKey]:
        with self._lock:
            self._records()
            return {flow for flow in flows if self._letters.get(flow)}

    def read(self, flow: FlowKey, id_: str) -> Parcel:
        with self._lock:
            self._records()
            return self._letters.get(flow, {})[id_][1]

    def park(self, flow: FlowKey, epoch: int, letter: DeadLetter, parcel: Parcel) -> None:
        with self._lock:
            self._check(flow, epoch)
            self._letters.setdefault(flow, {})[letter.id] = (letter, parcel)

    def retry(self, flow: FlowKey, ids: Sequence[str], *, anyone: bool = False) -> None:
        with self._lock:
            self._records()
            mine = self._letters.get(flow, {})
            for id_ in ids:
                if id_ in mine:
                    letter, parcel = mine[id_]
                    mine[id_] = (marked(letter, anyone=anyone), parcel)

    def remove(self, flow: FlowKey, ids: Sequence[str], epoch: int | None = None) -> None:
        with self._lock:
            self._records()
            if epoch is not None:
                self._check(flow, epoch)
            for id_ in ids:
                self._letters.get(flow, {}).pop(id_, None)

    def forget(self, flow: FlowKey) -> None:
        with self._lock:
            self._records()
            self._letters.pop(flow, None)

    def _check(self, flow: FlowKey, epoch: int) -> None:
        stored = self._records().get(flow)
        check_epoch(flow, epoch, None if stored is None else stored.epoch)
