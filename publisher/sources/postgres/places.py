"""Places of a log by name, by text and by time."""

from __future__ import annotations

from collections.abc import Callable

from publisher.sources.by_time import begins_later
from publisher.sources.postgres import slots
from publisher.sources.postgres.address import Address
from publisher.sources.postgres.lsn import format_lsn, parse_delivered
from publisher.sources.postgres.opening import Log
from publisher.sources.postgres.reader import WalReader
from wormhole.model.errors import PositionError, PositionPurged
from wormhole.model.position import Datamarker, LogPosition

__all__ = ["Places"]

_REPLAY = "use earliest, or replay from an archive"


class Places:
    """``look``: the log as it is now; ``open_at``: a reader of it."""

    def __init__(self, address: Address, look: Callable[[], Log], open_at: Callable[[Datamarker], WalReader]) -> None:
        self._address = address
        self._look = look
        self._open = open_at

    def earliest(self) -> Datamarker:
        """Where the slot begins that keeps the log."""
        return self._earliest(self._look())

    def latest(self) -> Datamarker:
        """At the end of what is on the server's disk: every confirmed commit lies before it, unless
        ``synchronous_commit`` is off."""
        log = self._look()
        return log.marker(log.end)

    def locate(self, text: str) -> Datamarker:
        """See :meth:`publisher.sources.postgres.source.PostgresSource.locate`."""
        text = text.strip()
        if text == "earliest":
            return self.earliest()
        if text == "latest":
            return self.latest()
        log = self._look()
        lsn = self._lsn(log, text)
        if lsn > log.state.end:
            raise PositionError(
                f"{text} is ahead of the log, which ends at {log.marker(log.state.end)}", hint="use latest"
            )
        first = self._earliest(log)
        if lsn < first.order.offset:
            raise PositionPurged(
                f"the log begins at {first}, and the server no longer sends {text}",
                last_missing=first.delivered,
                position=text,
                hint=_REPLAY,
            )
        return log.marker(lsn)

    def locate_time(self, at_us: int) -> Datamarker:
        """The end of the last transaction committed by then. The log is read from its beginning, for it has no index
        of times.
        """
        first = self.earliest()
        end = self.latest()
        found: Datamarker | None = None
        reader = self._open(first)
        try:
            while reader.place < end.order:
                segment = reader.read(1, 1.0)
                if segment is None or segment.marker is None or segment.newest_us == 0:
                    continue
                if segment.newest_us > at_us:
                    if found is None:
                        raise begins_later(first, segment.newest_us)
                    return found
                found = segment.marker
        finally:
            reader.close()
        if found is None:
            raise begins_later(first, 0)
        return found

    def _earliest(self, log: Log) -> Datamarker:
        first, *_ = slots.usable(log.state, self._address.slot, self._address.database)
        return log.marker(first.confirmed)

    def _lsn(self, log: Log, text: str) -> int:
        if text.count("/") == 2:
            place = LogPosition.parse(text)
            if place.incarnation != log.history.number or place.file:
                raise PositionError(
                    f"{text} is not a place of the log's incarnation {log.history.number}",
                    hint="use earliest, latest or an LSN",
                )
            return place.offset
        timeline, lsn = parse_delivered(text)
        if not log.timelines.holds(timeline or log.timelines.current, lsn):
            raise PositionError(
                f"{text} is of timeline {timeline}, which the server's history does not have up to {format_lsn(lsn)}",
                hint="use earliest, latest or an LSN of its present timeline",
            )
        return lsn
