"""Keeps on disk how far the log was read: an upper bound of the updates that were delivered before a crash.

An application may process updates long before a datamarker is acknowledged and stored. At the next start the server may
be another one, or may have lost the end of its log. Then only this place shows that delivered updates are in no log any
more.

The place is written before the updates are returned, once for each piece of the log that no reader has reached before.
The write takes microseconds and survives the process, in the operating system's cache. `sync` writes the place to the
disk, about once a second. A power cut of the publisher's host may lose the places of the last second. Two slots are
written in turn, so that one is always complete.

If publishers on several hosts may own the log, `sync` also writes the place to a document that they share. A host that
takes the log over uses that document, which may lack the last second of reading if the former host died. A publisher
that restarts on the same host also has its file. It uses the file's place if the place is of the same incarnation and
further. A file of other histories is never used, because its places are of another log.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Final
from zlib import crc32

from datastores.common.kept_state import keep, load
from wormhole.model.errors import PositionError, SourceUnavailable, WormholeError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.source_state import SourceState

__all__ = ["HighWater"]

_log = logging.getLogger(__name__)

_SLOT: Final = 1 << 20
_HEAD: Final = Struct(">QII")  # number of the write, bytes, CRC-32
_DOCUMENT: Final = "read"
_MOST_DELIVERED: Final = 512 << 10  # the most bytes of a logical position in the document
_PROOF: Final = 3  # the number of values of an anchor


@dataclass(frozen=True, slots=True)
class _Written:
    """The content of a slot of the file. ``number``: the number of the write. ``histories``: the name of the histories
    that the place belongs to; empty: those of the folder."""

    number: int = 0
    marker: Datamarker | None = None
    histories: str = ""


class HighWater:
    """The kept place. Thread-safe. ``last``: the furthest datamarker read in the newest incarnation; one that an
    earlier release wrote has no anchor.

    ``histories``: the name of the histories if hosts share them; empty: those of the folder. ``problem``: why the last
    :meth:`try_sync` failed.
    """

    def __init__(self, path: Path, shared: SourceState | None = None) -> None:
        """Read the kept place. ``shared``: the state that several hosts share; ``None``: only the file is used.

        Raises :class:`SourceUnavailable` if the file cannot be read, and the transient errors of ``shared``.
        """
        self._path = path
        self._shared = shared
        self._lock = threading.Lock()
        self._sharing = threading.Lock()
        self._dirty = False
        self.problem = NO_PROBLEM
        slots = [_Written()]
        with suppress(FileNotFoundError), self._opened(os.O_RDONLY) as file:
            slots += [_read(file, 0), _read(file, _SLOT)]
        written = max(slots, key=lambda slot: slot.number)
        self._number = written.number
        known = {} if shared is None else load(shared, _DOCUMENT)
        self.histories = "" if shared is None else str(known.get("id") or secrets.token_hex(8))
        self.last = self._brought = _marker_in(known)
        if written.histories == self.histories and (shared is None or _is_further(written.marker, self.last)):
            self.last, self._dirty = written.marker, shared is not None
        if shared is not None and known.get("id") != self.histories:
            keep(shared, _DOCUMENT, {"id": self.histories, **_fields(self.last)})

    def rise(self, marker: Datamarker) -> None:
        """Record that the log was read up to ``marker``. Raises :class:`SourceUnavailable` if the write fails.

        If hosts share the place, the first place of an incarnation is written to their document at once. Errors of that
        write are raised too.
        """
        with self._lock:
            last = self.last
            if last is not None and marker.order <= last.order:
                return
            if last is None or last.order.incarnation < marker.order.incarnation:
                self._bring(marker)
            more = [*_proof(marker), *filter(None, (self.histories,))]
            data = json.dumps([str(marker.order), marker.delivered, *more]).encode()
            if len(data) > _SLOT - _HEAD.size:
                data = json.dumps([str(marker.order), "", *more]).encode()
            self._number += 1
            head = _HEAD.pack(self._number, len(data), crc32(data))
            with self._opened(os.O_WRONLY | os.O_CREAT) as file:
                os.pwrite(file, head + data, self._number % 2 * _SLOT)
            self.last = marker
            self._dirty = True

    def sync(self) -> None:
        """Write the place to the disk and to the shared document. Raises :class:`SourceUnavailable`, and the transient
        errors of the shared state. After such an error the next call writes the document again.
        """
        with self._lock:
            dirty, self._dirty = self._dirty, False
            last = self.last
        if not dirty or last is None:
            return
        try:
            with self._opened(os.O_WRONLY) as file:
                os.fdatasync(file)
            self._bring(last)
        except BaseException:
            with self._lock:
                self._dirty = True
            raise

    def try_sync(self) -> None:
        """Call `sync`. A failure is logged, and is the ``problem`` until a later call succeeds."""
        problem = NO_PROBLEM
        try:
            self.sync()
        except WormholeError as error:
            problem = Problem(
                f"how far the log was read cannot be kept: {error.text}", error.hint or "", code="file-unwritable"
            )
        if problem and problem != self.problem:
            _log.warning("%s", problem)
        self.problem = problem

    def copy_to(self, shared: SourceState) -> None:
        """Write the place to ``shared``, for other hosts. Raises the errors of :meth:`sync`."""
        keep(shared, _DOCUMENT, _fields(self.last))

    def _bring(self, marker: Datamarker) -> None:
        """Write ``marker`` to the shared document unless the document has a further place."""
        with self._sharing:
            if self._shared is None or (self._brought is not None and marker.order <= self._brought.order):
                return
            keep(self._shared, _DOCUMENT, {"id": self.histories, **_fields(marker)})
            self._brought = marker

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        try:
            file = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
            try:
                yield file
            finally:
                os.close(file)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and flags == os.O_RDONLY:
                raise
            raise SourceUnavailable(
                f"{self._path} cannot be read or written: {error.strerror}",
                hint="make space in the publisher's state_dir",
                code="file-unwritable",
            ) from error


def _read(file: int, begin: int) -> _Written:
    head = os.pread(file, _HEAD.size, begin)
    if len(head) < _HEAD.size:
        return _Written()
    number, size, checksum = _HEAD.unpack(head)
    data = os.pread(file, min(size, _SLOT), begin + _HEAD.size)
    if len(data) != size or crc32(data) != checksum:
        return _Written()  # the slot's write was incomplete
    try:
        order, delivered, *more = json.loads(data)
        proof, name = (more[:_PROOF], more[_PROOF:]) if len(more) >= _PROOF else ([], more)
        return _Written(number, _marker(order, delivered, proof), str(name[0]) if name else "")
    except (ValueError, TypeError, AttributeError, IndexError, PositionError):
        return _Written()


def _marker(order: str, delivered: object, proof: list[Any]) -> Datamarker:
    """The datamarker of a record. A malformed record may raise any exception."""
    place = LogPosition.parse(order)
    anchor = Anchor(str(proof[0]), int(proof[1]), LogPosition.parse(proof[2])) if proof else None
    return Datamarker(place, str(delivered), place, anchor)


def _proof(marker: Datamarker) -> list[Any]:
    anchor = marker.anchor
    return [] if anchor is None else [anchor.id, anchor.checksum, str(anchor.begin)]


def _fields(marker: Datamarker | None) -> dict[str, Any]:
    """The datamarker's fields in a document."""
    if marker is None:
        return {}
    delivered = marker.delivered if len(marker.delivered) <= _MOST_DELIVERED else ""
    return {"order": str(marker.order), "delivered": delivered, "anchor": _proof(marker)}


def _marker_in(document: dict[str, Any]) -> Datamarker | None:
    if "order" not in document:
        return None
    try:
        return _marker(document["order"], document["delivered"], document["anchor"])
    except (LookupError, ValueError, TypeError, AttributeError, PositionError):
        _log.error("how far the log was read is not valid where its hosts keep it, and is forgotten: %.300s", document)
        return None


def _is_further(written: Datamarker | None, shared: Datamarker | None) -> bool:
    """Whether this host's place is in the shared document's incarnation and further than the document's place."""
    if written is None or shared is None:
        return False
    return written.order.incarnation == shared.order.incarnation and written.order > shared.order
