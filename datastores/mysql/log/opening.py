"""Opens a reader at a datamarker: on the same server by place, on another server by GTIDs, with a proof of the log.

By place, the dump begins with the transaction before the marker. It is compared with the marker's anchor and not
delivered. By GTIDs, the server must have executed everything that was delivered, and must not have purged other
transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.files.packets import FilePackets
from datastores.mysql.history.confirmation import Confirmation, Unconfirmed
from datastores.mysql.history.continuity import Read
from datastores.mysql.history.delivered import delivered_of
from datastores.mysql.history.incarnations import Incarnations, same_file
from datastores.mysql.log.dump import Dump, FromFile, FromGtids, Start
from datastores.mysql.log.folder_log import FolderDump, FolderLog, OnServer
from datastores.mysql.log.gtid_coverage import FILE_BEGIN, GtidCoverage, lacking, only_deleted
from datastores.mysql.log.prepared_xa import Prepared
from datastores.mysql.log.reader import BinlogReader
from datastores.mysql.log.scan import ANEW, fails_again, pass_to, see_beginning
from datastores.mysql.log.spool import Spool
from datastores.mysql.log.tables import Tables
from datastores.mysql.log.walk import LogWalk
from datastores.mysql.server.address import Address
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import connect
from datastores.mysql.server.id_claims import IdClaims
from datastores.mysql.server.state import ServerState, StateQueries
from datastores.mysql.server.table_definitions import Definition, ask
from wormhole.model.errors import Diverged, Retryable, SourceUnavailable, WormholeError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.ports.datastore import SourceOptions

__all__ = ["Opening"]

CheckFile = Callable[[int, int, str], None]

_LARGEST_OFFSET: Final = (1 << 32) - 1  # the largest offset at which a dump can begin


class Opening:
    """Opens the readers of one source.

    ``look``: reads the server's tables into ``catalog``. ``folder``: for files kept while reading. ``folder_log``: log
    that the server may have purged."""

    def __init__(
        self,
        address: Address,
        queries: StateQueries,
        incarnations: Incarnations,
        claims: IdClaims,
        confirmation: Confirmation,
        options: SourceOptions,
        *,
        catalog: Catalog,
        look: Callable[[Connection[Any], Catalog], object],
        folder: Path,
        folder_log: FolderLog,
    ) -> None:
        self._address = address
        self._queries = queries
        self._incarnations = incarnations
        self._claims = claims
        self._confirmation = confirmation
        self._options = options
        self._catalog = catalog
        self._look = look
        self._folder = folder
        self._folder_log = folder_log

    def open(
        self, marker: Datamarker, passed: Callable[[Datamarker], None], closed: Callable[[BinlogReader], None]
    ) -> BinlogReader:
        """See :meth:`wormhole.ports.log_source.LogSource.open`.

        ``passed`` is called with every datamarker, and ``closed`` with the reader when it is closed."""
        connection = connect(self._address)
        try:
            reached = self._incarnations.reached
            view = self._queries.view(connection)
            incarnation = self._incarnations.observe(view, reached, believe=self._confirmation.by(connection))
            start, placed = self._start(connection, view, incarnation, marker)
            self._look(connection, self._catalog)
            keys, since = self._catalog.listed_keys, LogPosition(incarnation, *self._queries.end(connection))
        except BaseException:
            connection.close()
            raise
        making = _Making(self, connection, view, incarnation)
        making.tables.know_keys(keys, since)
        return making.reader(marker, start, placed, passed, closed)

    def describe(self, database: str, table: str) -> Definition | None:
        """The server's present definition of a table."""
        connection = connect(self._address)
        try:
            return ask(connection, database, table)
        finally:
            connection._force_close()  # type: ignore[attr-defined]

    def walk(
        self, view: ServerState, incarnation: int, start: Start, delivered: str = "", place: LogPosition | None = None
    ) -> _Making:
        """A walk through the log from ``start`` on, on a new connection. The caller closes it."""
        making = _Making(self, connect(self._address), view, incarnation)
        making.begin(start, delivered, place)
        return making

    def read(self, last: Datamarker | None, view: ServerState) -> Read | None:
        """How far the present log was read (up to ``last``), and which of its GTIDs this server lacks."""
        if last is None or last.order.incarnation != self._incarnations.current:
            return None
        mariadb = self._queries.mariadb
        gone = lacking(view, last.delivered, mariadb=mariadb) if view.gtids else ""
        if gone and only_deleted(view, gone, mariadb=mariadb) and self._holds(view, last):
            gone = ""
        return Read(last.order, gone)

    def _holds(self, view: ServerState, marker: Datamarker) -> bool:
        """Whether the server's own log still has ``marker``.

        The marker's file must be unchanged, and must have the transaction before the marker, unless that is in an
        earlier file. Reads the file on a new connection. Raises :class:`SourceUnavailable`.
        """
        order, anchor = marker.order, marker.anchor
        size = view.own_size(order.file)
        if anchor is None or size is None or size < order.offset:
            return False
        begin, here = LogPosition(order.incarnation, order.file, FILE_BEGIN), anchor.begin.file == order.file
        if here and anchor.begin.offset <= _LARGEST_OFFSET:
            begin = anchor.begin
        making = _Making(self, connect(self._address), view, order.incarnation)
        making.begin(FromFile(view.name(begin.file), begin.offset), "", begin, server_id=0)
        with closing(making):
            try:
                pass_to(making.walk, order, anchor if here else None)
            except Diverged:
                return False
            return here or making.walk.anchor is None

    def fingerprint(self, view: ServerState, number: int) -> str:
        """The fingerprint of one of the server's files, read on a new connection. Raises :class:`SourceUnavailable`."""
        found: list[str] = []
        making = _Making(
            self, connect(self._address), view, 0, check_file=lambda _, __, fingerprint: found.append(fingerprint)
        )
        # With server id 0 only the file's beginning is read, and no other reader's dump ends.
        making.begin(FromFile(view.name(number), FILE_BEGIN), "", LogPosition(0, number, FILE_BEGIN), server_id=0)
        with closing(making):
            see_beginning(making.walk)
        return found[-1]

    def confirmed(
        self, error: WormholeError, view: ServerState, since: LogPosition, failed: LogPosition, start: Start | None
    ) -> WormholeError:
        """The error to raise for ``error``, which occurred between the transaction's end ``since`` and ``failed``.

        It is ``error`` if the log fails there again on another connection. Otherwise it is `Unconfirmed`, and the next
        reader tries again. ``start``: the start of the reader's dump, used if ``since`` is unknown.
        """
        same_file = (since.incarnation, since.file) == (failed.incarnation, failed.file)
        begin = since if same_file and since.offset <= _LARGEST_OFFSET else None
        if start is None:
            start = FromFile(view.name(failed.file), begin.offset if begin is not None else FILE_BEGIN)
            begin = begin or LogPosition(failed.incarnation, failed.file, FILE_BEGIN)
        delivered = start.text if isinstance(start, FromGtids) else ""
        try:
            making = _Making(self, connect(self._address), view, failed.incarnation)
            making.begin(start, delivered, begin, server_id=0)
            with closing(making):
                if fails_again(making.walk, failed, error):
                    return error
        except Retryable:
            pass
        return Unconfirmed(str(error)).at(position=str(failed))

    def leads(self, view: ServerState, number: int) -> bool:
        """Whether the folder's files from ``number`` on continue up to the server's first file. Reads the files.

        Raises :class:`SourceUnavailable`."""
        connection = connect(self._address)
        try:
            return self._folder_log.leads(connection, view, number)
        finally:
            connection.close()

    def _start(
        self, connection: Connection[Any], view: ServerState, incarnation: int, marker: Datamarker
    ) -> tuple[Start, LogPosition | None]:
        """The start of the dump, and its place; ``None``: the place is unknown."""
        order, anchor = marker.order, marker.anchor
        by_gtids = FromGtids(marker.delivered)
        reach = GtidCoverage(self._queries, connection, view, self._incarnations.begun_with)
        if order.incarnation != incarnation:
            if self._incarnations.unproven:
                reach.check(marker)  # raises with the missing range, which check_way does not know
            self._incarnations.check_way(marker)
            reach.check(marker)
            for number, read in self._incarnations.read_since(order.incarnation):
                reach.check_read(marker, number, read)
            return by_gtids, None
        end = LogPosition(incarnation, *view.end)
        size = view.size(order.file)
        if order > end or (size is not None and order.file != end.file and order.offset > size):
            raise Diverged(
                f"the datamarker {marker} is not in this log, which ends at {view.place(end)}",
                position=str(order),
                hint=ANEW,
            )
        if order.file < view.first or size is None:
            # The file is gone, but all log before the oldest file may have been delivered.
            reach.check(marker)
            return by_gtids, None
        begin = min(order, marker.read_from if marker.read_from.incarnation == incarnation else order)
        if anchor is not None and anchor.begin.incarnation == incarnation:
            begin = min(begin, anchor.begin)
        if begin.file < view.first:
            reach.check_executed(marker, held=True)
            begin = order
        if begin.offset > _LARGEST_OFFSET:
            # By GTIDs the stream would begin at an offset whose upper half is unknown.
            begin = LogPosition(incarnation, begin.file, FILE_BEGIN)
        return FromFile(view.name(begin.file), begin.offset), begin


class _Making:
    """Builds the parts of one reader on a connection that it owns."""

    def __init__(
        self,
        of: Opening,
        connection: Connection[Any],
        view: ServerState,
        incarnation: int,
        check_file: CheckFile | None = None,
    ) -> None:
        self._of = of
        self._connection = connection
        self._view = view
        self._incarnation = incarnation
        believe = of._confirmation.by(connection)
        self._check_server_file = check_file or partial(of._incarnations.check_file, believe=believe)
        self._server_id = 0
        self._given_id: int | None = None
        self._left_out = ""  # GTIDs of the folder's files that are left out
        self.dump: Dump | None = None
        options = of._options
        self.tables = Tables(
            options.log,
            options.sharding,
            options.skip_tables,
            options.history_tables,
            catalog=of._catalog,
            mariadb=of._queries.mariadb,
            describe=of.describe if of._queries.mariadb else None,
        )
        count = options.sharding.count if options.sharding.by == "hash" else 0
        self.encoder = Encoder(options.max_update_bytes, count)
        self.prepared = Prepared(of._folder, options.disk_budget, held=self.encoder.held)
        self.spool = Spool(of._folder, self.encoder.ignores)

    def begin(
        self, start: Start, delivered: str, place: LogPosition | None = None, server_id: int | None = None
    ) -> LogWalk:
        """Start the dump, with a server id of its own unless one is given."""
        of, view = self._of, self._view
        mariadb = of._queries.mariadb
        try:
            self.delivered = delivered_of(delivered, mariadb=mariadb)
            self._given_id = server_id
            packets = of._folder_log.packets(self._connection, view, start)
            if packets is None:
                number = self._take_id(self._connection, view)
                self.dump = Dump(self._connection, start, server_id=number, mariadb=mariadb)
            else:
                self._left_out = start.text if isinstance(start, FromGtids) else ""
                over = partial(setattr, self.encoder, "checksums")
                self.dump = FolderDump(packets, self._following, over, mariadb=mariadb)
                self._connection.close()
            self.walk = LogWalk(
                self.dump,
                self.encoder,
                self.tables,
                self.prepared,
                self.spool,
                self.delivered,
                incarnation=self._incarnation,
                file=place.file if place else 0,
                server=view.identity,
                mariadb=mariadb,
                check_file=self._check_file,
                next_file=self._go_to_next_file,
            )
            self.encoder.file_offset = place.offset if place else 0
        except BaseException:
            self.close()
            raise
        return self.walk

    def reader(
        self,
        marker: Datamarker,
        start: Start,
        place: LogPosition | None,
        passed: Callable[[Datamarker], None],
        closed: Callable[[BinlogReader], None],
    ) -> BinlogReader:
        """Build the reader and move it to its place."""
        walk = self.begin(start, marker.delivered, place)
        try:
            if place is not None:
                pass_to(walk, marker.order, self._anchor_after(marker, place))
        except WormholeError as error:
            self.close()
            raise error.at(position=str(marker.order)) from error.__cause__
        except BaseException:
            self.close()
            raise
        assert self.dump is not None

        def closing_reader() -> None:
            self._give_back()
            closed(reader)

        reader = BinlogReader(
            self.dump,
            self.encoder,
            walk,
            self.tables,
            self.prepared,
            self.delivered,
            marker,
            placed=place is not None,
            passed=passed,
            closed=closing_reader,
            # A server that refuses GTIDs may still accept a place.
            confirmed=lambda error, since: self._of.confirmed(
                error, self._view, since, walk.place, start if place is None and since == marker.order else None
            ),
        )
        return reader

    def close(self) -> None:
        """Close everything and return the server id."""
        if self.dump is not None:
            self.dump.close()
        else:
            self._connection._force_close()  # type: ignore[attr-defined]
        self.prepared.close()
        self.spool.close()
        self._give_back()

    def _go_to_next_file(self, file: int) -> str | None:
        """Continue the dump with the file after ``file``. Returns its name; ``None``: the server has no later file."""
        assert self.dump is not None
        connection = connect(self._of._address)
        try:
            view = self._of._queries.view(connection)
            if view.own_size(file + 1) is None:
                connection.close()
                return None
            if self._server_id:  # the present id stays locked until the server notices the closed connection
                self._give_back()
                self._server_id = self._of._claims.take(connection, view.server_id)
        except BaseException:
            connection._force_close()  # type: ignore[attr-defined]
            raise
        name = view.name(file + 1)
        self.dump.restart(connection, FromFile(name, FILE_BEGIN), server_id=self._server_id)
        return name

    def _following(self, packets: FilePackets) -> FilePackets | OnServer:
        """The continuation of a folder's file that was read to its end: the next file, or the server's log."""
        connection = connect(self._of._address)
        try:
            view = self._of._queries.view(connection)
            if view.identity != self._view.identity:
                raise SourceUnavailable(f"the server is {view.identity} now", hint="the log is opened again")
            inside = self.encoder.in_transaction
            following = self._of._folder_log.following(connection, view, packets, self._left_out, inside=inside)
            if not isinstance(following, FilePackets):
                return OnServer(connection, following, self._take_id(connection, view))
        except BaseException:
            connection._force_close()  # type: ignore[attr-defined]
            raise
        connection.close()
        return following

    def _check_file(self, incarnation: int, number: int, fingerprint: str) -> None:
        packets = self.dump.packets if isinstance(self.dump, FolderDump) else None
        if packets is None:
            self._check_server_file(incarnation, number, fingerprint)
        elif not same_file(packets.file.fingerprint, fingerprint):
            raise SourceUnavailable(f"{packets.file.path} is another file than before", hint="the log is opened again")

    def _take_id(self, connection: Connection[Any], view: ServerState) -> int:
        """Take the dump's server id: the given one, or a new one."""
        if self._given_id is not None:
            return self._given_id
        self._server_id = self._of._claims.take(connection, view.server_id)
        return self._server_id

    def _give_back(self) -> None:
        number, self._server_id = self._server_id, 0
        if number:
            self._of._claims.give_back(number)

    def _anchor_after(self, marker: Datamarker, place: LogPosition) -> Anchor | None:
        """The marker's anchor if the walk from ``place`` passes it; otherwise ``None``."""
        anchor = marker.anchor
        return anchor if anchor is not None and place <= anchor.begin else None
