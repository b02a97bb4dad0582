"""Keeps the items that a flow received until they are acknowledged, and decides how far it may acknowledge. Pure.

A flow's log holds the items that arrived, in order, from the last acknowledged datamarker on::

    acknowledged | held: taken, finished or running | waiting
                 ^ a rollback returns to here       ^ next to take

Finished batches return their credit (``progress``), but stay held until a later datamarker is acknowledged, so that a
rollback needs no data from the publisher. The held bytes are bounded. Beyond the bound the oldest batch is dropped, and
a rollback then needs a resend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Final

from subscriber_sdk.subscriber import DataLoss, ShardNotice
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema

__all__ = ["BatchItem", "FlowLog", "Item", "LossItem", "MarkerItem", "NoticeItem", "RangeItem", "ScanEndItem"]

_ITEM_BYTES: Final = 64
"""The memory of a held batch in addition to its body, so that many tiny batches are bounded too."""
_TOGETHER_BYTES: Final = 256 << 10
"""The most bytes of bodies that are delivered together."""
_NO_WINDOWS: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class BatchItem:
    """A batch body, still encoded. The parsed form takes several times the memory, so it exists only while handlers
    run.

    ``unfinished``: whether its last transaction continues in the next batch.
    """

    number: int
    replayed: bool
    body: bytes
    unfinished: bool = False
    finished: bool = False
    windows: Mapping[int, int] = field(default_factory=lambda: _NO_WINDOWS)
    """The number of updates by window of commit time, once the body was parsed."""


@dataclass(slots=True, eq=False)
class MarkerItem:
    """A datamarker. ``marker`` may be acknowledged once every item before it is processed."""

    marker: Datamarker


@dataclass(slots=True, eq=False)
class NoticeItem:
    """A replay begins or ends here."""

    notice: ShardNotice


@dataclass(slots=True, eq=False)
class LossItem:
    """A gap in the log. The application decides once, even if the item is delivered again after a rollback."""

    loss: DataLoss
    decided: bool = False


@dataclass(slots=True, eq=False)
class RangeItem:
    """The end of a range of keys, after every row of the range. ``frame``: a serialized ``ChunkEnd``, because its keys
    as objects take many times the memory. ``schema``: the schema of its keys.
    """

    frame: bytes
    schema: Schema


@dataclass(slots=True, eq=False)
class ScanEndItem:
    """The end of a scan of ``table``, after all its rows. ``rows``: the number of these rows."""

    table: str
    rows: int


Item = BatchItem | MarkerItem | NoticeItem | LossItem | RangeItem | ScanEndItem


class FlowLog:
    """The items that a flow received and has not acknowledged.

    ``hold_bytes``: the most bytes of finished bodies that are kept for a rollback.
    """

    __slots__ = (
        "_held",
        "_hold_bytes",
        "_progress",
        "_running",
        "_single",
        "_waiting",
        "held_bytes",
        "waiting_bytes",
        "whole",
    )

    def __init__(self, hold_bytes: int) -> None:
        self._hold_bytes = hold_bytes
        self._waiting: deque[Item] = deque()
        self._held: deque[Item] = deque()
        self._running: deque[BatchItem] = deque()  # taken batches in order, from the first unfinished batch on
        self._single: Item | None = None  # a taken item that is not a batch, whose callback has not returned
        self.held_bytes = 0
        """Bytes of finished bodies that are kept for a rollback."""
        self.waiting_bytes = 0
        """Bytes of bodies that wait to be taken."""
        self._progress = 0
        self.whole = True
        """Whether every item since the last acknowledged datamarker is still kept."""

    def __len__(self) -> int:
        """The number of items that wait to be taken."""
        return len(self._waiting)

    @property
    def unfinished(self) -> bool:
        """Whether a callback of a taken item has not returned. Then no later datamarker may be acknowledged."""
        return bool(self._running) or self._single is not None

    def append(self, item: Item) -> None:
        """Add an item that arrived. Of consecutive datamarkers only the newest stays."""
        waiting = self._waiting
        if waiting and isinstance(item, MarkerItem) and isinstance(waiting[-1], MarkerItem):
            waiting[-1] = item
        else:
            waiting.append(item)
            if isinstance(item, BatchItem):
                self.waiting_bytes += len(item.body)

    def peek(self) -> Item | None:
        """The item that :meth:`take` would return."""
        return self._waiting[0] if self._waiting else None

    def take(self, *, over: bool = False) -> Item | None:
        """Take the next item to work on; ``None`` when nothing waits. ``over``: drop a datamarker if another datamarker
        waits, with only batches in between.
        """
        item = self._next(over=over)
        if item is None:
            return None
        self._waiting.popleft()
        if isinstance(item, MarkerItem) and self._held and isinstance(self._held[-1], MarkerItem):
            self._held[-1] = item  # the datamarker before was not acknowledged, and no batch came since
        else:
            self._held.append(item)
        if isinstance(item, BatchItem):
            self._running.append(item)
            self.waiting_bytes -= len(item.body)
        elif not isinstance(item, MarkerItem):
            self._single = item
        return item

    def take_together(self, first: BatchItem, *, over: bool) -> list[BatchItem]:
        """Take the batches of whole transactions that wait directly behind ``first``, a taken batch. Returns ``first``
        and these batches. ``over``: see :meth:`take`.
        """
        taken, size = [first], len(first.body)
        while not first.unfinished and isinstance(item := self._next(over=over), BatchItem):
            size += len(item.body)
            if item.unfinished or item.replayed is not first.replayed or size > _TOGETHER_BYTES:
                break
            self.take()
            taken.append(item)
        return taken

    def passed(self) -> None:
        """Note that the callback of an item that is neither a batch nor a datamarker has returned."""
        self._single = None

    def finish(self, item: BatchItem) -> int | None:
        """Note that every callback of ``item`` returned. Returns the batch number to report as progress, which rises up
        to the first unfinished batch; ``None`` if it did not rise.
        """
        item.finished = True
        running = self._running
        number = 0
        while running and running[0].finished:
            first = running.popleft()
            number = first.number
            self.held_bytes += _weight(first)
        self._trim()
        if number <= self._progress:
            return None
        self._progress = number
        return number

    def acknowledge(self, item: MarkerItem) -> None:
        """Drop the items up to ``item``, whose marker was acknowledged."""
        held = self._held
        while held:
            first = held.popleft()
            if isinstance(first, BatchItem):
                self.held_bytes -= _weight(first)
            if first is item:
                break
        self.whole = True

    def rollback(self) -> bool:
        """Let all held items wait again. Returns false, without a change, if a part of them was dropped and has to be
        sent again."""
        if not self.whole:
            return False
        for item in self._held:
            if isinstance(item, BatchItem):
                item.finished = False
                self.waiting_bytes += len(item.body)
        self._waiting.extendleft(reversed(self._held))
        self._held.clear()
        self._running.clear()
        self._single = None
        self.held_bytes = 0
        return True

    def drop_waiting(self) -> int:
        """Drop everything, because the flow ends. Returns the number of items that had not been taken."""
        waiting = len(self._waiting)
        self._waiting.clear()
        self._held.clear()
        self._running.clear()
        self._single = None
        self.held_bytes = self.waiting_bytes = 0
        return waiting

    def _next(self, *, over: bool) -> Item | None:
        waiting = self._waiting
        while over and waiting and isinstance(waiting[0], MarkerItem):
            behind = (item for item in islice(waiting, 1, None) if not isinstance(item, BatchItem))
            if not isinstance(next(behind, None), MarkerItem):
                break
            waiting.popleft()
        return self.peek()

    def _trim(self) -> None:
        held = self._held
        while self.held_bytes > self._hold_bytes and held:
            first = held[0]
            if isinstance(first, BatchItem):
                if not first.finished:
                    return
                self.held_bytes -= _weight(first)
            held.popleft()
            self.whole = False


def _weight(item: BatchItem) -> int:
    return len(item.body) + _ITEM_BYTES
