"""MySQL and MariaDB as a log source. The server keeps the log, and readers request it like a replica."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from pymysql.connections import Connection

from datastores.common.polling import Polling
from datastores.common.shared_state import make_state_dir, open_state
from datastores.mysql.history.confirmation import Confirmation, Unconfirmed
from datastores.mysql.history.continuity import lost_history
from datastores.mysql.history.incarnations import Incarnations
from datastores.mysql.log.folder import BinlogFolder
from datastores.mysql.log.folder_log import FolderLog
from datastores.mysql.log.opening import Opening
from datastores.mysql.log.places import Places
from datastores.mysql.log.reader import BinlogReader
from datastores.mysql.log.tables import shard_name
from datastores.mysql.server.address import parse
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import connect, login_of
from datastores.mysql.server.id_claims import IdClaims, ServerIds, list_replicas
from datastores.mysql.server.login import next_step
from datastores.mysql.server.required_settings import refuse
from datastores.mysql.server.settings import Settings, read_settings
from datastores.mysql.server.state import ServerState, queries_of
from datastores.mysql.server.table_names import look
from wormhole.host.folder_identity import identity_of
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.sharding import hash_shards
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.log_source import SourceStatus

__all__ = ["MySqlSource"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_S: Final = 1.0


class MySqlSource:
    """Implements :class:`~wormhole.ports.log_source.LogSource` for the server that ``url`` names.

    Places are (incarnation, number of the binlog file, offset); logical positions are GTID sets (MySQL) or GTID
    positions (MariaDB). The state folder holds the server of each incarnation, and the rows of prepared XA transactions
    (at most ``disk_budget`` bytes for each reader). If hosts share the log's state, it holds the incarnations instead.
    """

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._url = url
        self._options = options
        self._log = options.log
        self._state_dir = options.state_dir / "mysql"
        self._skip_tables = sorted(options.skip_tables)
        self._server_ids = ServerIds.parse(options.server_ids, options.log)
        self._asking = threading.Lock()  # one query at a time on the control connection
        self._lock = threading.Lock()  # guards the values that `status` uses
        self._confirmation = Confirmation()
        self._control: Connection[Any] | None = None
        self._shown: Connection[Any] | None = None  # the connection on which the log was last proven
        self._view: ServerState | None = None
        self._rivals = NO_PROBLEM  # other readers with our replication ids
        self._furthest: LogPosition | None = None
        self._readers: set[BinlogReader] = set()
        self._shards: frozenset[str] = frozenset()
        self._polling = Polling(options, _log, "the server cannot be asked for its state: %s")

    def start(self) -> None:
        """See the port. Refuses a server without the :mod:`datastores.mysql.server.required_settings`."""
        login = self._options.login
        self._address = parse(
            self._url, password_file=login.password_file, my_cnf=login.user_files, prompt=login.prompt
        )
        for remark in self._address.remarks:
            _log.warning("%s", remark)
        for table in self._skip_tables:
            _log.warning("skip_tables: no update of %s is delivered", table)
        connection, settings = self._confirmation.twice(self._look_first)
        try:
            make_state_dir(self._state_dir)
            self._catalog = Catalog(self._state_dir / "tables.jsonl")
            self._shards = self._known_shards(look(connection, self._catalog))
            state, self._high_water = open_state(self._options, self._state_dir)
            self._polling.high_water = self._high_water
            self._incarnations = Incarnations(state, self._high_water)
        except BaseException:
            connection.close()
            raise
        self._mariadb = settings.mariadb
        self._folder = BinlogFolder(self._options.binlog_folder, mariadb=settings.mariadb)
        self._queries = queries_of(settings, self._with_folder)
        self._claims = IdClaims(
            self._server_ids,
            self._high_water.histories or identity_of(self._state_dir.stat()),
            list_replicas(mariadb=settings.mariadb, version=settings.version),
        )
        self._opening = Opening(
            self._address,
            self._queries,
            self._incarnations,
            self._claims,
            self._confirmation,
            self._options,
            catalog=self._catalog,
            look=look,
            folder=self._state_dir,
            folder_log=FolderLog(self._folder, self._queries),
        )
        self._places = Places(self._ask, self._queries, self._incarnations, self._opening)
        self._control = connection
        self._ask(self._queries.view)
        self._see_newest()
        self._polling.begin(f"mysql-{self._log}", {"": (lambda: _POLL_S, partial(self._polling.poll, self._poll))})

    def stop(self) -> None:
        """See the port. Open readers are closed."""
        self._polling.end(close=self._close_readers)
        with self._asking:
            self._drop_control()
        with self._lock:
            self._furthest = self._view = None

    def earliest(self) -> Datamarker:
        """See the port. The place is the beginning of the oldest binlog file of the server or the folder."""
        return self._confirmation.twice(self._places.earliest)

    def latest(self) -> Datamarker:
        """See the port."""
        return self._confirmation.twice(self._places.latest)

    def locate(self, text: str) -> Datamarker:
        """See the port. The text may also be ``file:offset`` (``binlog.000012:4711``), or a GTID set or GTID position
        as in a database dump. A place within a transaction means the transaction's beginning."""
        return self._confirmation.twice(lambda: self._places.locate(text))

    def locate_time(self, at_us: int) -> Datamarker:
        """See the port. The result is as exact as the server's times, which are whole seconds in MariaDB. Reads the
        file of the time."""
        return self._confirmation.twice(lambda: self._places.locate_time(at_us))

    def open(self, marker: Datamarker) -> BinlogReader:
        """See the port. A marker of an earlier server is found by its GTIDs."""

        def opened() -> BinlogReader:
            self._ask(self._queries.view)  # checks after an interruption that the log is the same
            return self._opening.open(marker, self._note, self._closed)

        reader = self._confirmation.twice(opened)
        self._readers.add(reader)
        return reader

    def shards(self) -> frozenset[str]:
        """See the port. The shards are those at the start. A later table's shard appears with its first segment."""
        return self._shards

    def release(self, oldest: LogPosition) -> None:
        """See the port. Does nothing: the server alone decides how long it keeps its binlogs."""

    def status(self) -> SourceStatus:
        """See the port. The status is about a second old."""
        with self._lock:
            view, furthest, problem = self._view, self._furthest, self._polling.problem
        incarnation = self._incarnations.current
        skipped = f"by skip_tables, nothing of {', '.join(self._skip_tables)} is delivered" if self._skip_tables else ""
        others = (
            self._rivals,
            self._high_water.problem,
            Problem(skipped, code="table-left-out"),
            self._catalog.problem,
            self._folder.problem,
        )
        problems = tuple(filter(None, (problem, *others)))
        if view is None:
            place = LogPosition(incarnation, 0, 0)
            return SourceStatus(place, place, 0, problems, end_unknown=str(problem))
        end = LogPosition(incarnation, *view.end)
        if furthest is not None and furthest.incarnation == incarnation:
            end = max(end, furthest)
        sizes = dict(view.all_files)
        sizes[end.file] = max(end.offset, sizes.get(end.file, 0))
        oldest = LogPosition(incarnation, view.first, 4)
        files = tuple(sorted(sizes.items()))
        return SourceStatus(end, oldest, 0, problems, files, end_unknown=str(problem), base=view.base)

    # --- inside ------------------------------------------------------------------------------------------------

    def _close_readers(self) -> None:
        for reader in tuple(self._readers):
            reader.close()

    def _ask(self, question: Callable[[Connection[Any]], T]) -> T:
        """Query the server on the control connection, or on a new one if that is broken or its answer must be
        confirmed."""
        return self._confirmation.twice(lambda: self._ask_once(question))

    def _ask_once(self, question: Callable[[Connection[Any]], T]) -> T:
        reached = self._incarnations.reached
        with self._lock:
            since = max(reached, self._furthest or reached)
        with self._asking:
            try:
                answer = self._put(question)
            except SourceUnavailable:
                answer = self._put(question)
            if not isinstance(answer, ServerState):
                return answer
            try:
                incarnation = self._observe(answer, since)
            except Unconfirmed:
                self._drop_control()
                raise
        with self._lock:
            self._view = answer
            if incarnation == since.incarnation:
                self._furthest = max(since, self._furthest or since, LogPosition(incarnation, *answer.end))
        for reader in tuple(self._readers):
            reader.outlived(incarnation)
        return answer

    def _observe(self, view: ServerState, since: LogPosition) -> int:
        """The incarnation of the log. On a new connection the log is first compared with the known one."""
        believe = self._confirmation.by(self._control)
        lost = None
        if self._shown is not self._control:
            read = self._opening.read(self._high_water.last, view)
            lost = lost_history(
                self._incarnations,
                view,
                lambda file: self._opening.fingerprint(view, file),
                believe,
                read,
                lambda file: self._opening.leads(view, file),
            )
        incarnation = self._incarnations.observe(view, since, lost, believe)
        self._shown = self._control
        return incarnation

    def _see_newest(self) -> None:
        """Store the fingerprint of the newest file if no reader did. It then identifies the log."""
        view = self._view
        if view is not None and not self._incarnations.knows_file(view.end[0]):
            incarnation = self._incarnations.current
            fingerprint = self._opening.fingerprint(view, view.end[0])
            self._incarnations.check_file(incarnation, view.end[0], fingerprint)

    def _with_folder(self, view: ServerState) -> ServerState:
        """The view of the server's log, with the folder's files before it."""
        known = self._incarnations.known(view.identity)
        return self._folder.join(view, known.files if known is not None else {})

    def _put(self, question: Callable[[Connection[Any]], T]) -> T:
        if self._control is None:
            self._control = connect(self._address)
        try:
            return question(self._control)
        except SourceUnavailable:
            self._drop_control()
            raise

    def _drop_control(self) -> None:
        control, self._control = self._control, None
        if control is not None and control.open:
            control.close()

    def _poll(self) -> None:
        self._ask(self._queries.view)
        self._see_newest()
        self._rivals = self._ask(self._claims.problem)

    def _look_first(self) -> tuple[Connection[Any], Settings]:
        """Open a connection to a server whose log can be read. Returns it with the server's settings."""
        connection = connect(self._address)
        try:
            if risk := login_of(connection).risk():
                _log.warning("%s: %s: %s; next: %s", self._address, *risk, next_step(self._address))
            settings = read_settings(connection)
            refuse(settings, str(self._address))
        except BaseException:
            connection.close()
            raise
        return connection, settings

    def _known_shards(self, tables: Iterable[tuple[str, str, bool]]) -> frozenset[str]:
        """The shards of the present tables."""
        sharding = self._options.sharding
        by, count = sharding.by, sharding.count
        if by == "log":
            return frozenset({self._log})
        hashed = hash_shards(self._log, count)
        return frozenset(hashed) | {
            shard_name(self._log, sharding, database, table)
            for database, table, keyed in tables
            if by != "hash" or not keyed
        }

    def _note(self, marker: Datamarker) -> None:
        """Record that a reader is about to return the log up to ``marker``."""
        self._high_water.rise(marker)
        with self._lock:
            if self._furthest is None or marker.order > self._furthest:
                self._furthest = marker.order

    def _closed(self, reader: BinlogReader) -> None:
        self._readers.discard(reader)
