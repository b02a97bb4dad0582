"""Recorded changes as a log source, for one database whose triggers write each change into a table."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from datastores.common.polling import Polling
from datastores.common.shared_state import make_state_dir, open_state
from datastores.postgres.capture.histories import Histories
from datastores.postgres.capture.reader import ANEW, CaptureReader, Source, marker_of
from datastores.postgres.capture.session import (
    CUT_S,
    OLDEST_VERSION,
    LogState,
    find,
    installed,
    read_state,
    show_in_use,
)
from datastores.postgres.capture.triggers import captured_tables, troubles
from datastores.postgres.capture.url import CaptureUrl
from datastores.postgres.decode.encoder import Encoder
from datastores.postgres.decode.tables import Tables, shard_name
from datastores.postgres.server.address import parse
from datastores.postgres.server.connection import Connection, connect, understood
from datastores.postgres.server.control import Control
from datastores.postgres.sql_text import quote_identifier
from wormhole.model.errors import (
    Diverged,
    PositionError,
    PositionPurged,
    SourceUnavailable,
    UnsupportedLog,
)
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.model.sharding import hash_shards
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.log_source import SourceStatus
from wormhole.ports.log_times import begins_later

__all__ = ["CaptureSource"]

_log = logging.getLogger(__name__)

_POLL_S: Final = 1.0
_TABLES_S: Final = 10.0
_AT_ONCE: Final = 2000  # the most transactions that one call of `prune` removes
_ROOM: Final = 0.5  # the share of the bound that must be free before recording continues


class CaptureSource:
    """Implements :class:`~wormhole.ports.log_source.LogSource` for the database that ``url`` names.

    Places are (incarnation, 0, bytes of the change table); logical positions are numbers of transactions. The database
    keeps the numbers, and keeps the changes until they are released. The state folder, or the hosts' shared state,
    holds the incarnations and how far the log was read.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._options = options
        self._url = CaptureUrl.parse(url)
        self._schema = self._url.schema
        self._state_dir = options.state_dir / "postgres-capture"
        self._lock = threading.Lock()  # guards the values that `status` uses
        self._control = Control(self._connected, self._within)
        self._seen: LogState | None = None
        self._incarnation = 0
        self._released: LogPosition | None = None
        self._readers: set[CaptureReader] = set()
        self._found: tuple[Problem, ...] = ()
        self._tables_s = 0.0  # when the tables were last checked
        self._polling = Polling(options, _log, "the recorded changes cannot be read: %s")

    def start(self) -> None:
        """See the port. Refuses a database without the objects that record changes."""
        login = self._options.login
        self._address = parse(
            self._url.server,
            self._options.log,
            password_file=login.password_file,
            pgpass=login.user_files,
            prompt=login.prompt,
        )
        for remark in self._address.remarks:
            _log.warning("%s", remark)
        make_state_dir(self._state_dir)
        state, self._high_water = open_state(self._options, self._state_dir)
        self._polling.high_water = self._high_water
        self._histories = Histories(state, self._high_water)
        try:
            self._look()
            self._look_at_tables()
        except BaseException:
            self._control.close()
            raise
        self._tables_s = time.monotonic()
        polls = (lambda: _POLL_S, partial(self._polling.poll, self._poll))
        self._polling.begin(f"capture-{self._options.log}", {"": polls})

    def stop(self) -> None:
        """See the port. Open readers are closed."""
        self._polling.end(close=self._close_readers)
        self._control.close()
        with self._lock:
            self._seen = self._released = None

    def earliest(self) -> Datamarker:
        """See the port. The place is after the last removed transaction."""
        state = self._look()
        order = LogPosition(self._incarnation, 0, state.floor_place)
        anchor = Anchor(f"{state.identity}:{state.floor_number}", state.floor_checksum, order)
        return Datamarker(order, str(state.floor_number), order, anchor, state.floor_at_us)

    def latest(self) -> Datamarker:
        """See the port."""
        state = self._look()
        return self._after(state, f"number <= {state.number}")

    def locate(self, text: str) -> Datamarker:
        """See the port. ``seq:N`` is the place after transaction N."""
        if text == "earliest":
            return self.earliest()
        if text == "latest":
            return self.latest()
        state = self._look()
        if text.startswith("seq:"):
            if not text[4:].isascii() or not text[4:].isdigit() or len(text) > 22:
                raise PositionError(f"{text!r} is no number of a transaction", hint="write seq:N, for example seq:1042")
            wanted, floor, end, condition = int(text[4:]), state.floor_number, state.number, f"number <= {text[4:]}"
        else:
            place = LogPosition.parse(text)
            if place.incarnation != self._incarnation or place.file:
                raise PositionError(
                    f"{text} is of another incarnation than {self._incarnation}", hint="use earliest, latest or seq:N"
                )
            wanted, floor, end, condition = place.offset, state.floor_place, state.place, f"place <= {place.offset}"
        if wanted > end:
            raise PositionError(
                f"{text} is ahead of the log, which ends at {self._end(state)}, transaction {state.number}",
                hint="use latest",
            )
        if wanted < floor:
            raise PositionPurged(
                f"the log begins after transaction {state.floor_number} and no longer holds {text}",
                last_missing=str(state.floor_number),
                position=text,
                hint="use earliest, or replay from an archive",
            )
        return self._after(state, condition)

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port. A transaction's time is that of its last change, or a later time of a transaction before it."""
        state = self._look()
        if at_us < state.floor_at_us:
            raise begins_later(self.earliest(), state.floor_at_us)
        return self._after(state, f"at <= timestamptz 'epoch' + {at_us} * interval '1 microsecond'")

    def open(self, marker: Datamarker) -> CaptureReader:
        """See the port."""
        state = self._look()
        self._check(state, marker)
        with self._within():
            connection = connect(self._address)
        sharding, options = self._options.sharding, self._options
        tables = Tables(options.log, sharding, options.skip_tables, encoding=connection.encoding)
        encoder = Encoder(tables, options.max_update_bytes, sharding.count if sharding.by == "hash" else 0)
        source = Source(self._schema, self._look, self._high_water.rise, self._readers.discard)
        reader = CaptureReader(connection, encoder, tables, marker, state.identity, source)
        self._readers.add(reader)
        return reader

    def shards(self) -> frozenset[str]:
        """See the port. The shards are those of the tables that are recorded now."""
        sharding, log = self._options.sharding, self._options.log
        if sharding.by == "log":
            return frozenset({log})
        if sharding.by == "hash":
            return frozenset(hash_shards(log, sharding.count))
        names = self._control.ask(lambda control: captured_tables(control, self._schema))
        return frozenset(shard_name(log, sharding, schema, table) for schema, table in names)

    def release(self, oldest: LogPosition) -> None:
        """See the port. The changes before ``oldest`` are removed within seconds."""
        with self._lock:
            self._released = oldest

    def status(self) -> SourceStatus:
        """See the port. The status is about a second old."""
        with self._lock:
            seen, problem, found = self._seen, self._polling.problem, self._found
        if seen is None:
            place = LogPosition(self._histories.current, 0, 0)
            return SourceStatus(place, place, 0, tuple(filter(None, (problem,))), end_unknown=str(problem))
        return SourceStatus(
            self._end(seen),
            LogPosition(self._incarnation, 0, seen.floor_place),
            seen.bytes,
            tuple(filter(None, (problem, self._high_water.problem, *found, *_stopped(seen)))),
            files=((0, seen.place),),
            budget_bytes=seen.most_bytes,
            end_unknown=str(problem),
        )

    # --- inside ---------------------------------------------------------------------------------------------------

    def _close_readers(self) -> None:
        for reader in tuple(self._readers):
            reader.close()

    def _look(self) -> LogState:
        """Give new transactions their numbers. Returns the state of the log."""
        read = self._histories.read

        def looked(control: Connection) -> LogState:
            state = read_state(control, self._schema, read)
            if state.uncut:
                control.query(f"SELECT {quote_identifier(self._schema)}.cut()", timeout_s=CUT_S)
                state = read_state(control, self._schema, read)
            return state

        state = self._control.ask(looked)
        number = self._histories.observe(state, read)
        with self._lock:
            self._seen, self._incarnation = state, number
        for reader in tuple(self._readers):
            reader.outlived(number)
        return state

    @contextmanager
    def _within(self) -> Iterator[None]:
        with installed(self._address, self._schema), understood(self._address):
            yield

    def _connected(self) -> Connection:
        connection = connect(self._address)
        try:
            if connection.version < OLDEST_VERSION:
                raise UnsupportedLog(
                    f"{self._address}: PostgreSQL {connection.version // 10000} is too old to record changes",
                    hint=f"use PostgreSQL {OLDEST_VERSION // 10000} or later",
                )
            if connection.query("SELECT pg_catalog.pg_is_in_recovery()") == [("t",)]:
                raise SourceUnavailable(
                    f"{self._address} is a standby, which gives transactions no numbers",
                    hint="name the primary in the log's source; a retry follows",
                    code="copy-not-ready",
                )
            show_in_use(connection, self._schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _poll(self) -> None:
        state = self._look()
        if self._options.may_act() and not self._options.transient:
            self._prune()
            self._resume(state)
        if time.monotonic() - self._tables_s >= _TABLES_S:
            self._look_at_tables()
            self._tables_s = time.monotonic()

    def _prune(self) -> None:
        """Remove the changes before the oldest datamarker, in batches."""
        with self._lock:
            released, present = self._released, self._incarnation
        if released is None or released.incarnation != present:
            return
        prune = f"SELECT {quote_identifier(self._schema)}.prune({released.offset}, {_AT_ONCE})"
        ask = self._control.ask
        while not self._polling.stopped.is_set() and ask(lambda control: control.query(prune)) == [("1",)]:
            pass

    def _resume(self, state: LogState) -> None:
        """Let the triggers record again once enough of the change table is free."""
        if state.opening or (state.stopped and state.bytes - state.free_bytes < state.most_bytes * _ROOM):
            resume = f"SELECT {quote_identifier(self._schema)}.resume()"
            while self._control.ask(lambda control: control.query(resume)) == [("t",)]:
                pass
            _log.error("changes are recorded again; those that were not are reported as a loss")

    def _look_at_tables(self) -> None:
        found = self._control.ask(lambda control: troubles(control, self._schema))
        for problem in found:
            if problem not in self._found:
                _log.warning("%s", problem)
        with self._lock:
            self._found = found

    def _end(self, state: LogState) -> LogPosition:
        return LogPosition(self._incarnation, 0, state.place)

    def _after(self, state: LogState, condition: str) -> Datamarker:
        """The datamarker after the last transaction that meets the SQL condition."""
        found = self._control.ask(lambda control: find(control, self._schema, condition))
        if found is None:
            return self.earliest()
        begin = LogPosition(self._incarnation, 0, state.floor_place)
        return marker_of(self._incarnation, state.identity, found, begin)

    def _check(self, state: LogState, marker: Datamarker) -> None:
        """Check that ``marker`` belongs to this log."""
        order = marker.order
        if order.incarnation != self._incarnation or order.file or order.offset > state.place:
            raise self._diverged(marker, f"the log ends at {self._end(state)}")
        if order.offset < state.floor_place:
            raise PositionPurged(
                f"the log begins after transaction {state.floor_number} and no longer holds what follows {order}",
                first_missing=str(int(marker.delivered) + 1),
                last_missing=str(state.floor_number),
                position=str(order),
                hint="start from earliest, or replay the range from the archive",
            )
        if order.offset == state.floor_place:
            place, checksum = state.floor_place, state.floor_checksum
        else:
            there = self._control.ask(lambda control: find(control, self._schema, f"place = {order.offset}"))
            if there is None or str(there.number) != marker.delivered:
                raise self._diverged(marker, "no transaction of the log ends there")
            place, checksum = there.place, there.checksum
        if marker.anchor is not None and (place, checksum) != (order.offset, marker.anchor.checksum):
            raise self._diverged(marker, "the transaction before it is another one")

    def _diverged(self, marker: Datamarker, why: str) -> Diverged:
        return Diverged(f"the datamarker {marker} is not in this log: {why}", position=str(marker.order), hint=ANEW)


def _stopped(state: LogState) -> tuple[Problem, ...]:
    if not state.stopped:
        return ()
    return (
        Problem(
            f"changes are not recorded: the change table reached its bound of {state.most_bytes >> 20} MiB",
            "see which flow is furthest behind (`wormholectl flows`); recording goes on by itself when half of the "
            "table is free, and the flows then report a loss",
            code="log-kept-short",
        ),
    )
