"""A source that may not be able to start yet. Its publisher serves nevertheless and reports the reason.

An operator needs a publisher that answers in order to repair a wiped database, a server whose password was changed, or
a state folder on a full disk. So starting is tried again without end. Until it succeeds each call of the source raises
:class:`~wormhole.model.errors.SourceUnavailable` with the reason.
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
    """A :class:`~wormhole.ports.log_source.LogSource` around another one. Thread-safe. Nothing opens it before
    :meth:`start`. ``relay``: around the relay of that source, if it has one; behaves in the same way.

    No method raises anything but :class:`~wormhole.model.errors.WormholeError`, because an unforeseen exception must
    not end the process that reports the problem to an operator. Such an exception is logged with its traceback, once.
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
        self._again_at = math.inf  # until `start`: a standby leaves the datastore alone
        self._unforeseen = ""

    def start(self) -> None:
        """Try to start. Raises the reason if it cannot start. Any later call of another method tries again."""
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
            # Starting may take seconds: one thread tries, and the others get an answer at once.
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
    """``asked`` calls its argument, or raises the reason why it cannot."""

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
