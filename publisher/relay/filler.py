"""In the mode ``hold``, fills a hole between the relay's tip and a reader of the log, so that the datastore may delete
that log.

The filler reads the datastore's log from the tip on, at the same time as the reader, until it reaches the reader's
place.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import Final

from publisher.relay.recorder import Recorder
from publisher.relay.tip import Proof
from wormhole.model.errors import DecodeError, Diverged, PositionPurged, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, LogSource

__all__ = ["Filler"]

_log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 20
_WAIT_S: Final = 0.25
_REST_S: Final = 1.0  # the wait after an error of the log


class Filler:
    """A thread that waits for holes until the recorder is stopped."""

    def __init__(self, inner: LogSource, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self._thread = threading.Thread(target=self._run, name="relay-filler", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread ends, after the recorder was stopped."""
        self._thread.join()

    def _run(self) -> None:
        rest_s, said = 0.0, ""
        while self._recorder.wait_for_hole(rest_s):
            try:
                self._fill()
                rest_s, said = 0.0, ""
            except WormholeError as error:
                if isinstance(error, DecodeError):
                    self._recorder.cannot_fill()
                if str(error) != said:
                    said = str(error)
                    _log.warning("the relay lacks a part of the log, which cannot be read just now: %s", error)
                rest_s = _REST_S
            except Exception:  # noqa: BLE001
                # The thread must not end, because the datastore would then keep its log while the publisher runs.
                _log.exception("unexpected, please report this")
                rest_s = _REST_S

    def _fill(self) -> None:
        recorder = self._recorder
        if not recorder.claim(self, fills=True):
            return
        recorder.join(self)
        try:
            marker, reader, proof = self._open(recorder.tip)
            recorder.proved(self, proof, self)
            while not self._copy(reader, marker, proof):
                (marker, reader), proof = self._open_earliest(), Proof.PURGED
        finally:
            recorder.leave(self)

    def _open(self, tip: Datamarker | None) -> tuple[Datamarker, LogReader, Proof]:
        """Open the log at the ``tip``, or at its beginning. Returns the place, the reader, and whether the log at the
        tip is the recorded log."""
        proof = Proof.PURGED
        if tip is not None:
            try:
                return tip, self._inner.open(tip), Proof.ONE
            except PositionPurged:
                pass
            except Diverged:
                proof = Proof.DIVERGED
        return *self._open_earliest(), proof

    def _open_earliest(self) -> tuple[Datamarker, LogReader]:
        earliest = self._inner.earliest()
        return earliest, self._inner.open(earliest)

    def _copy(self, reader: LogReader, marker: Datamarker, proof: Proof) -> bool:
        """Copy the log from the reader into the relay, then close the reader. Returns whether the hole is filled as far
        as possible. ``False``: the datastore deleted unread log, so a stretch has to begin at its present beginning.
        """
        recorder = self._recorder
        before: Datamarker | None = marker
        follows = proof is Proof.ONE
        with closing(reader):
            while True:
                if not follows and before is not None:
                    tip = recorder.tip
                    follows = tip is None or before.order >= tip.order or proof is Proof.DIVERGED
                    if follows and not recorder.fill_from(self, before):
                        return True
                segment = reader.read(_READ_BYTES, _WAIT_S)
                if segment is None:
                    if not recorder.fills(self):
                        return True
                    continue
                if before is not None and self._is_given_up(before, segment):
                    return False
                if follows and not recorder.fill(self, segment, before):
                    return True
                before = segment.marker

    def _is_given_up(self, before: Datamarker, segment: Segment) -> bool:
        """Whether log between ``before`` and the segment is gone, and no datamarker is known where the segment
        begins."""
        if segment.gap is None or segment.begin in (before.order, segment.end):
            return False
        return self._inner.earliest().order > before.order
