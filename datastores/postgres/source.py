"""PostgreSQL as a log source, for one database of a server, read by logical decoding."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Final

from datastores.common.polling import Attempts, Polling
from datastores.common.shared_state import make_state_dir, open_state
from datastores.postgres.decode.tables import shard_name
from datastores.postgres.doctor.server_objects import find_names
from datastores.postgres.doctor.slots import is_near
from datastores.postgres.history.delivered_transactions import delivered_transactions
from datastores.postgres.history.incarnations import Incarnations
from datastores.postgres.history.timelines import Timelines, read_timelines
from datastores.postgres.log import slots
from datastores.postgres.log.flushing import EMPTY_COMMIT
from datastores.postgres.log.opening import Log, Opening
from datastores.postgres.log.places import Places
from datastores.postgres.log.reader import WalReader
from datastores.postgres.log.slot_mover import SlotMover
from datastores.postgres.server.address import parse
from datastores.postgres.server.connection import Connection, connect, understood
from datastores.postgres.server.control import Control
from datastores.postgres.server.lsn import format_lsn
from datastores.postgres.server.state import AnotherServer, ServerState, Slot, check_same, read_state
from datastores.postgres.server.stream import Stream
from datastores.postgres.server.url import ServerUrl
from datastores.postgres.sql_text import quote_literal
from datastores.postgres.standing import check_settings, check_slots
from datastores.postgres.table_watch import TableWatch
from datastores.postgres.tables import publication, unlogged_changes
from datastores.postgres.tables.identities import read_tables
from datastores.postgres.tables.publication import SILENT_SINCE, Publication
from datastores.postgres.tables.unlogged_changes import UnloggedChanges
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    PositionPurged,
    SourceUnavailable,
    WormholeError,
)
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.sharding import hash_shards
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.log_source import SlotStatus, SourceStatus

__all__ = ["PostgresSource"]

_log = logging.getLogger(__name__)

_POLL_S: Final = 1.0
_SILENT_S: Final = 15.0
"""A server that has not answered for this long is reported, even while a thread still waits for an answer."""
_ADVANCE_S: Final = 5.0  # seconds between two moves of the slots
_ANSWER_S: Final = 10.0
_PAUSED_S: Final = 3.0  # a reader that has paused for so long, in seconds, delays the server's shutdown


class PostgresSource:
    """Implements :class:`~wormhole.ports.log_source.LogSource` for the database that ``url`` names.

    Places are (incarnation, 0, LSN); logical positions are ``timeline:LSN``. The slots of
    :mod:`datastores.postgres.log.slots` make the server keep the log. The state folder, or the hosts' shared state,
    holds the history of each incarnation and how far the log was read.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._url = url
        self._options = options
        self._log = options.log
        self._state_dir = options.state_dir / "postgres"
        self._looking = threading.Lock()  # two concurrent checks would begin two histories after one that ended
        self._lock = threading.Lock()  # guards the values that `status` uses
        self._control = Control(lambda: connect(self._address), lambda: understood(self._address), self._let_it_end)
        self._mover: SlotMover | None = None
        self._keeper: Connection | None = None  # holds a temporary slot, if the operator created none
        self._shown: Connection | None = None  # the connection on which the log was last proven
        self._seen: Log | None = None
        self._moves_again_s = 0.0
        self._watching = threading.Lock()  # one check of the tables at a time
        self._tables: Connection | None = None  # the session for checks of the tables
        self._looks_again_s = 0.0
        self._looks = Attempts(_log, "changes of rows that the log does not have are not noticed: %s")
        self._unwatched = False  # the catalogue changed after the last comparison of published tables
        self._polling = Polling(options, _log, "the server cannot be asked for its state: %s")
        self._answered_s = 0.0  # when the server last answered
        self._furthest: Datamarker | None = None
        self._released: LogPosition | None = None
        self._readers: set[WalReader] = set()
        self._streams: set[Stream] = set()
        self._shards: frozenset[str] = frozenset()
        self._delivered = delivered_transactions(self._state_dir)

    def start(self) -> None:
        """See the port. Refuses a server whose log has no rows, and one without the publication or the slots."""
        login = self._options.login
        # A command without a log uses the log's name that `init` would choose.
        log_name = ServerUrl.parse(self._url).database if self._options.transient else self._log
        self._address = parse(
            self._url, log_name, password_file=login.password_file, pgpass=login.user_files, prompt=login.prompt
        )
        if self._options.transient:
            self._address = self._control.ask(partial(find_names, address=self._address))
        for remark in self._address.remarks:
            _log.warning("%s", remark)
        for table in sorted(self._options.skip_tables):
            _log.warning("skip_tables: no update of %s is delivered", table)
        make_state_dir(self._state_dir)
        state, self._high_water = open_state(
            self._options, self._state_dir, publication.DOCUMENT, unlogged_changes.DOCUMENT
        )
        self._polling.high_water = self._high_water
        self._incarnations = Incarnations(state, self._high_water)
        self._publication = Publication(state)
        self._unlogged = UnloggedChanges(state, self._options.skip_tables)
        self._opening = Opening(
            self._address,
            self._options,
            self._incarnations,
            self._publication,
            published_from=self._published_from,
            opened=self._streams.add,
            ended=self._streams.discard,
            delivered=self._delivered,
            unlogged=self._unlogged,
        )
        self._watched = TableWatch(self._address.publication)
        self._slots = {
            name: name for name in (slots.held_slot(self._address.slot), slots.lead_slot(self._address.slot))
        }
        self._mover = SlotMover(self._address.slot, lambda: connect(self._address), self._owns_alone)
        self._places = Places(self._address, self._look, self.open, self._commit_nothing, self._pause)
        try:
            log = self._look()
            check_settings(log.state, self._address)
            if self._options.transient and not log.state.slots:
                log = self._keep_for_now()
            check_slots(log.state, self._address)
            self._shards = self._control.ask(self._known_shards)
            self._look_at_tables()
            self._answered_s = time.monotonic()
        except BaseException:
            self._disconnect()
            raise
        pause_s = min(log.state.sender_timeout_s / 3 or _ANSWER_S, _ANSWER_S)
        works = {"poll": (lambda: _POLL_S, self._poll), "answers": (lambda: pause_s, self._answer)}
        if not self._options.transient:
            works["slots"] = (lambda: _ADVANCE_S, self._move_slots)
            works["tables"] = (lambda: _POLL_S, self._look_at_tables)
        self._polling.begin(f"postgres-{{}}-{self._log}", works)

    def stop(self) -> None:
        """See the port. Open readers are closed."""
        self._polling.end(interrupt=self._cancel_move, close=self._close_readers)
        self._disconnect()
        with self._lock:
            self._furthest = self._seen = self._released = None

    def earliest(self) -> Datamarker:
        """See the port. The place is the beginning of the slot that keeps the log."""
        return self._places.earliest()

    def latest(self) -> Datamarker:
        """See the port."""
        return self._places.latest()

    def locate(self, text: str) -> Datamarker:
        """See the port. The text may also be an LSN (``0/16B3748``), or an LSN with its timeline (``2:0/16B3748``)."""
        return self._places.locate(text)

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port. The server decodes its log from the earliest place on."""
        return self._places.locate_time(at_us)

    def open(self, marker: Datamarker) -> WalReader:
        """See the port. A marker of an earlier timeline is found by its LSN."""
        log = self._look()
        if log.state.version >= SILENT_SINCE:
            check_settings(log.state, self._address)
        try:
            reader = self._opening.open(log, marker, self._note, self._closed)
        except Diverged:
            with self._lock:
                self._shown = None  # so that the next check proves the log again
            raise
        except AnotherServer:
            self._control.close()  # the address now leads to another server
            raise
        self._readers.add(reader)
        with suppress(WormholeError):  # the next check retries this
            self._control.ask(self._delivered.refresh)
        return reader

    def shards(self) -> frozenset[str]:
        """See the port. The shards are those at the start. A later table's shard appears with its first segment."""
        return self._shards

    def release(self, oldest: LogPosition) -> None:
        """See the port. Within seconds the slot advances, and the server removes its log before ``oldest``."""
        with self._lock:
            self._released = oldest

    def status(self) -> SourceStatus:
        """See the port. The status is about a second old."""
        with self._lock:
            seen, furthest, problem = self._seen, self._furthest, self._polling.problem
        if not problem and time.monotonic() - self._answered_s > _SILENT_S:
            where = f"{self._address.where} was not asked with success for {_SILENT_S:g} s"
            problem = Problem(where, "check the server's load and its network", code="source-silent")
        if seen is None:
            current = self._incarnations.current
            place = LogPosition(current.number if current else 0, 0, 0)
            return SourceStatus(place, place, 0, tuple(filter(None, (problem,))), end_unknown=str(problem))
        held = seen.state.slots.get(slots.held_slot(self._address.slot))
        end = seen.place(seen.state.end)
        if furthest is not None and furthest.order.incarnation == end.incarnation:
            end = max(end, furthest.order)
        oldest = end if held is None or held.lost else seen.place(held.confirmed)
        kept = 0 if held is None or held.lost else max(0, end.offset - held.restart)
        unmoved = self._mover.problem if self._mover is not None else NO_PROBLEM
        refused = self._watched.problem if seen.state.publication else NO_PROBLEM
        found = (problem, unmoved, self._high_water.problem, refused, *self._troubles(seen.state))
        return SourceStatus(
            end,
            oldest,
            kept,
            tuple(filter(None, found)),
            files=((0, end.offset),),
            budget_bytes=seen.state.keep_bytes,
            end_unknown=str(problem),
            base="LSN",
            slots=tuple(_slot_status(slot, seen.state) for slot in seen.state.slots.values()),
        )

    # --- inside ---------------------------------------------------------------------------------------------------

    def _cancel_move(self) -> None:
        if self._mover is not None:
            self._mover.cancel()

    def _close_readers(self) -> None:
        for reader in tuple(self._readers):
            reader.close()
        for stream in tuple(self._streams):  # a reader that is still being opened
            stream.give_up(_closed(), paused_s=0.0)

    def _look(self) -> Log:
        """The present log. On a new connection it is first proven to be the log that was read."""
        with self._looking:
            try:
                return self._looked()
            except AnotherServer:
                self._control.close()  # the address now leads to another server
                raise

    def _looked(self) -> Log:
        last = self._high_water.last  # read before the server's end, because readers advance meanwhile
        state = self._control.ask(lambda control: read_state(control, self._address.publication, self._slots))
        with self._lock:
            seen, shown = self._seen, self._shown is self._control.connection
        self._observe_publication(state)
        same = seen is not None and seen.state.identity == state.identity
        if not same:
            for reader in tuple(self._readers):
                reader.left_behind()
        timelines = seen.timelines if seen is not None and same else read_timelines(self._address, state.timeline)
        log = self._continued(state, timelines, last, shown=shown and same)
        with self._lock:
            self._seen, self._shown = log, self._control.connection
        self._opening.observe(log)
        for reader in tuple(self._readers):
            reader.outlived(log.history.number)
        return log

    def _observe_publication(self, state: ServerState) -> None:
        name = self._address.publication
        again = self._publication.observe(state)
        if state.version >= SILENT_SINCE and (again or not state.publication):
            for reader in tuple(self._readers):
                reader.republished()
        if again:
            _log.error(
                "the publication %s was dropped and made again: what was written in between, at the latest up to %s, "
                "is lost to flows that had not passed it",
                name,
                format_lsn(self._publication.since),
            )

    def _published_from(self, lsn: int) -> int:
        """The end of the log after ``lsn`` that may have been written without the publication. Raises
        :class:`~wormhole.model.errors.SourceUnavailable` while the publication does not exist.
        """
        log, end = self._places.end()
        check_settings(log.state, self._address)
        since = self._publication.since
        return since if since > lsn else end

    def _continued(self, state: ServerState, timelines: Timelines, last: Datamarker | None, *, shown: bool) -> Log:
        log = Log(state, self._incarnations.observe(state), timelines)
        if last is None or last.order.incarnation != log.history.number:
            return log
        lost = ""
        if last.order.offset > state.end:
            lost = (
                f"the server lost the end of its log: that was read up to {format_lsn(last.order.offset)} and ends at "
                f"{format_lsn(state.end)}"
            )
        elif not shown:
            try:
                self._opening.verify(log, last)
            except Diverged as error:
                lost = error.message
            except (PositionPurged, DecodeError):
                pass  # the log to compare is gone or damaged: flows report it when they are opened
        if not lost:
            return log
        _log.error("another history of the log begins: %s", lost)
        return Log(state, self._incarnations.observe(state, lost), timelines)

    def _commit_nothing(self) -> None:
        self._control.ask(lambda control: control.query(EMPTY_COMMIT))

    def _pause(self, seconds: float) -> None:
        if self._polling.stopped.wait(seconds):
            raise _closed()

    def _let_it_end(self, error: SourceUnavailable) -> None:
        """Close the streams of pausing readers.

        A server that ends a session and accepts no other shuts down, and waits for the readers.
        """
        for stream in tuple(self._streams):
            stream.give_up(error, paused_s=_PAUSED_S)

    def _keep_for_now(self) -> Log:
        """Make the server keep its log while this session lasts."""
        self._keeper = connect(self._address, walsender=True)
        name = f"{self._address.slot}_{os.getpid()}_{secrets.token_hex(4)}"[-63:]
        slots.create_temporary(self._keeper, name)
        self._slots = dict.fromkeys(self._slots, name)
        return self._look()

    def _disconnect(self) -> None:
        if self._mover is not None:
            self._mover.close()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()
        tables, self._tables = self._tables, None
        if tables is not None:
            tables.close()
        self._control.close()

    def _answer(self) -> None:
        for stream in tuple(self._streams):
            stream.answer()

    def _poll(self) -> None:
        self._polling.poll(self._poll_once)

    def _poll_once(self) -> None:
        self._look()
        self._control.ask(self._delivered.refresh)
        self._answered_s = time.monotonic()

    def _look_at_tables(self) -> None:
        """Check for row changes that the log does not show, and for changes of the published tables."""
        began = time.monotonic()
        if began < self._looks_again_s or self._options.transient or not self._options.may_act():
            return
        with self._lock:
            seen, furthest = self._seen, self._furthest
        if seen is None or not seen.state.publication:
            return
        present = seen.history.number
        read = furthest.order.offset if furthest is not None and furthest.order.incarnation == present else 0
        self._looks.make(partial(self._compare_tables, seen.state, read))
        ended = time.monotonic()
        self._looks_again_s = ended + slots.rest_s(ended - began)

    def _compare_tables(self, state: ServerState, read: int) -> None:
        with understood(self._address), self._watching:
            connection, name = self._catalogue(state), self._address.publication
            if self._unlogged.look(connection, name, state.system, read):
                self._unwatched = True
            if self._unwatched and (found := self._watched.observe(read_tables(connection, name))):
                _log.warning("%s", found)
            self._unwatched = False

    def _catalogue(self, state: ServerState) -> Connection:
        """The session for checks of the tables. It is separate, because with thousands of tables an answer takes
        seconds, and other threads query the server meanwhile.
        """
        if self._tables is None or not self._tables.is_open:
            self._tables = connect(self._address)
        try:
            check_same(self._tables, self._address, state)
        except BaseException:
            self._tables.close()
            raise
        return self._tables

    def _owns_alone(self) -> bool:
        """Whether no other publisher can act on the log now."""
        return self._options.state is not None and self._options.may_act()

    def _move_slots(self) -> None:
        """Advance the slots: held to the oldest datamarker, lead to the furthest reader."""
        began = time.monotonic()
        if began < self._moves_again_s or not self._options.may_act():
            return
        with self._lock:
            seen, released, furthest = self._seen, self._released, self._furthest
        if seen is None or self._mover is None:
            return
        wanted = {
            slots.held_slot(self._address.slot): released,
            slots.lead_slot(self._address.slot): furthest.read_from if furthest is not None else None,
        }
        present = seen.history.number
        places = {name: at.offset for name, at in wanted.items() if at is not None and at.incarnation == present}
        self._mover.move(places, seen.state)
        ended = time.monotonic()
        self._moves_again_s = ended + slots.rest_s(ended - began)

    def _troubles(self, state: ServerState) -> list[Problem]:
        found: list[Problem] = []
        for name in (slots.held_slot(self._address.slot), slots.lead_slot(self._address.slot)):
            slot = state.slots.get(name)
            if slot is None or slot.lost:
                try:
                    slots.check(state, self._address.slot, self._address.database)
                except WormholeError as error:
                    found.append(error.problem)
                break
            if slot.wal_status == "unreserved" or is_near(slot, state):
                found.append(
                    Problem(
                        f"the server removes the log that {name} needs after {max(0, slot.safe_bytes or 0) >> 20} MiB "
                        "more (max_slot_wal_keep_size)",
                        "see which flow is furthest behind (`wormholectl flows`), or raise max_slot_wal_keep_size",
                        code="log-kept-short",
                    )
                )
        return found

    def _known_shards(self, control: Connection) -> frozenset[str]:
        """The shards of the present tables."""
        sharding = self._options.sharding
        if sharding.by == "log":
            return frozenset({self._log})
        if sharding.by == "hash":
            return frozenset(hash_shards(self._log, sharding.count))
        tables = control.query(
            f"SELECT schemaname, tablename FROM pg_publication_tables "  # noqa: S608
            f"WHERE pubname = {quote_literal(self._address.publication)}"
        )
        return frozenset(shard_name(self._log, sharding, schema or "", table or "") for schema, table in tables)

    def _note(self, marker: Datamarker) -> None:
        """Record that a reader is about to return the log up to ``marker``."""
        self._high_water.rise(marker)
        with self._lock:
            if self._furthest is None or marker.order > self._furthest.order:
                self._furthest = marker

    def _closed(self, reader: WalReader) -> None:
        self._readers.discard(reader)


def _closed() -> SourceUnavailable:
    return SourceUnavailable("the log is closed", hint="it is opened again")


def _slot_status(slot: Slot, state: ServerState) -> SlotStatus:
    return SlotStatus(
        name=slot.name,
        kept_bytes=0 if slot.lost else max(0, state.end - slot.restart),
        left_bytes=None if slot.safe_bytes is None else max(0, slot.safe_bytes),
        lost=slot.lost,
        unsynced=None if slot.failover is None else state.standbys > 0 and not slot.failover,
        catalog_age=slot.catalog_age,
    )
