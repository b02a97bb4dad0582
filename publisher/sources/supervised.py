"""A log source whose start is retried until it succeeds. Meanwhile its publisher runs and reports the reason.

Operators need a publisher that answers while they repair a database, a password or a full disk. Until the start
succeeds, each call of the source raises :class:`~wormhole.model.errors.SourceUnavailable` with the reason.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from wormhole.model.errors import SourceUnavailable, WormholeError
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.log_source import LogReader, LogRelay, LogSource, SourceStatus

__all__ = ["SupervisedSource"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_RETRY_S: Final = 2.0


class SupervisedSource:
    """A :class:`~wormhole.ports.log_source.LogSource` around another one. Thread-safe. The inner source is not opened
    before :meth:`start`. ``relay``: the relay of that source, which is wrapped in the same way.

    Methods raise only :class:`~wormhole.model.errors.WormholeError`, because an unexpected exception must not end the
    process that reports the problem. Such an exception is logged once with its traceback.
    """

    def __init__(
        self, source: LogSource, relay: LogRelay | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.relay: LogRelay | None = None if relay is None else _SupervisedRelay(relay, self._asked)
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._started = False
        self._stopped = False
        self._why: WormholeError = SourceUnavailable(
            "the log was not opened yet", hint="it is opened in a moment", code="in-progress"
        )
        self._again_at = math.inf  # infinite until `start`: a standby does not access the datastore
        self._unforeseen = ""

    def start(self) -> None:
        """Try to start. Raises the reason if the inner source cannot start. Later calls of other methods try again."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._started or self._stopped:
            return
        try:
            self._guarded(self._source.start)
        except WormholeError as error:
            self._why = error
            self._again_at = self._clock() + _RETRY_S
            raise
        self._started = True

    def stop(self) -> None:
        """See the port."""
        with self._lock:
            self._stopped = True
            if self._started:
                self._source.stop()
                self._started = False

    def earliest(self) -> Datamarker:
        """See the port."""
        return self._asked(self._source.earliest)

    def latest(self) -> Datamarker:
        """See the port."""
        return self._asked(self._source.latest)

    def locate(self, text: str) -> Datamarker:
        """See the port."""
        return self._asked(lambda: self._source.locate(text))

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port."""
        return self._asked(lambda: self._source.locate_time(at_us))

    def open(self, marker: Datamarker) -> LogReader:
        """See the port."""
        return self._asked(lambda: self._source.open(marker))

    def shards(self) -> frozenset[str]:
        """See the port."""
        return self._asked(self._source.shards)

    def release(self, oldest: LogPosition) -> None:
        """See the port."""
        self._asked(lambda: self._source.release(oldest))

    def status(self) -> SourceStatus:
        """See the port."""
        return self._asked(self._source.status)

    def _asked(self, question: Callable[[], _T]) -> _T:
        if not self._started:
            # A start may take seconds. One thread tries, and calls of other threads raise immediately.
            if self._clock() >= self._again_at and self._lock.acquire(blocking=False):
                try:
                    self._try_again()
                finally:
                    self._lock.release()
            if not self._started:
                why = self._why
                raise SourceUnavailable(
                    f"the log cannot be opened: {why.message}", hint=why.hint, code=why.code
                ) from why
        return self._guarded(question)

    def _try_again(self) -> None:
        before = str(self._why)
        try:
            self._start()
        except WormholeError as error:
            if str(error) != before:
                _log.error("the log cannot be opened, a retry follows: %s", error)
        else:
            _log.info("the log is open now")

    def _guarded(self, question: Callable[[], _T]) -> _T:
        try:
            return question()
        except WormholeError:
            raise
        except OSError as error:
            raise SourceUnavailable(
                f"the log cannot be read: {error}", hint="check the disk and the permissions; a retry follows"
            ) from error
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self._unforeseen:
                self._unforeseen = text
                _log.exception("unexpected, please report this")
            raise SourceUnavailable(
                f"the log cannot be read: unexpected {text}",
                hint="please report this with the publisher's log; a retry follows",
                code="internal-error",
            ) from error


class _SupervisedRelay:
    """The wrapped relay. ``asked``: calls its argument, or raises why the source is not available."""

    def __init__(self, relay: LogRelay, asked: Callable[[Callable[[], Any]], Any]) -> None:
        self._relay = relay
        self._asked = asked

    def lost_keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        """See the port."""
        keys: LostKeys | None = self._asked(lambda: self._relay.lost_keys(shard, begin, end))
        return keys

    def keep_lost_keys(self, oldest: LogPosition) -> None:
        """See the port."""
        self._asked(lambda: self._relay.keep_lost_keys(oldest))

    def trim(self, keep_bytes: int) -> None:
        """See the port."""
        self._asked(lambda: self._relay.trim(keep_bytes))
