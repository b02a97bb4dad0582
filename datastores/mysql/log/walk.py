"""Walks through the log: drives the encoder over a dump, and handles events that are rare or come once per file.

A group of events is one transaction::

    MySQL      GTID (BEGIN rows* (XID | COMMIT | ROLLBACK) | DDL)
    MariaDB    GTID rows* (XID | COMMIT | ROLLBACK) | GTID(standalone) DDL
    XA         GTID ["XA START"] rows* "XA END" XA_PREPARE          and, later,  GTID "XA COMMIT" | "XA ROLLBACK"
    MySQL also GTID TRANSACTION_PAYLOAD(the rest of the group, compressed)
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from datastores.mysql.decode import events, stops
from datastores.mysql.decode.actions import ROWS_EVENTS
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.decode.large_event import Body, LargeEvent, with_length
from datastores.mysql.decode.payload import COMPRESSED, inflate, plain_event
from datastores.mysql.decode.rare_events import (
    Rotate,
    XaPrepare,
    Xid,
    parse_gtid_tagged,
    parse_incident,
    parse_load_query,
    parse_mariadb_gtid,
    parse_query,
    parse_rotate,
    parse_xa_prepare,
)
from datastores.mysql.decode.row_stream import RowStream, open_rows
from datastores.mysql.decode.statement import Kind
from datastores.mysql.history.delivered import MariaDelivered, MySqlDelivered
from datastores.mysql.log.broken_shards import BrokenShards
from datastores.mysql.log.current_file import BinlogFile
from datastores.mysql.log.dump import Dump
from datastores.mysql.log.dump_errors import is_torn
from datastores.mysql.log.prepared_xa import Prepared
from datastores.mysql.log.spool import Spool
from datastores.mysql.log.statements import Statements
from datastores.mysql.log.tables import Tables
from wormhole.model.errors import DecodeError, SourceUnavailable, WormholeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, LogPosition

__all__ = ["LogWalk", "Step"]

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_FIRST_OFFSET: Final = 4  # the offset of a file's first event
_PACKET: Final = 4
_LARGEST_EVENT: Final = 1 << 30
_LONGEST_STATEMENT: Final = 4 << 20
_LARGEST_LIST: Final = 16 << 20  # the most bytes of a list of GTIDs, which has then a million intervals
_COMPRESSED_ROWS: Final = COMPRESSED - {events.QUERY_COMPRESSED}
# Events that are held in memory even if they are larger than the limit for whole events.
_LISTS: Final = frozenset({events.TABLE_MAP, events.PREVIOUS_GTIDS, events.GTID_LIST})
# Events that belong to a statement: its values, and the file of a LOAD DATA with its end.
_STATEMENT_PARTS: Final = frozenset({events.INTVAR, events.RAND, events.USER_VAR})
_STATEMENT_FILES: Final = frozenset({9, 11, 17})  # APPEND_BLOCK, DELETE_FILE, BEGIN_LOAD_QUERY
_LOAD_QUERY: Final = 18
_STATEMENTS: Final = frozenset({events.QUERY, _LOAD_QUERY})
# Events at the beginning of a file that a reader does not need. MariaDB states how the file is encrypted, but sends its
# content decrypted.
_OF_FILES: Final = frozenset({events.START_ENCRYPTION})
_TYPE_AT: Final = 4
_SAVEPOINTS: Final = frozenset({Kind.SAVEPOINT, Kind.ROLLBACK_TO})
_NO_CHANGE: Final = frozenset({Kind.BEGIN, Kind.XA_END, Kind.XA_PREPARE})
_DAMAGED: Final = (
    "look at that place with `wormholectl tail URL` and the server's mysqlbinlog; when both read it, `wormholectl "
    "flows pause APP/SHARD` and `flows resume APP/SHARD` read it again; a damaged file is passed with `wormholectl "
    "markers set APP/SHARD PLACE`, once the application has what is missing"
)


class Step:
    """The result of a step."""

    END: Final = 0
    """Nothing more is available at present."""
    PROGRESS: Final = 1
    FULL: Final = 2
    """As much as requested is encoded."""
    CUT: Final = 3
    """The caller must take the encoded updates before the next step: the file ends, log is missing, or a table breaks.
    """


class LogWalk:
    """``file``: the present file; `Encoder.file_offset` is the offset in it. ``anchor``: the transaction that ended
    last.

    ``gap``: log that is missing right before the place. ``broken``: shards with unreadable rows. The caller clears
    both. ``verified``: the event at which a step failed had a correct checksum. ``log_bytes``: bytes of log passed.
    ``next_file``: continues the dump with the file after a number, and returns its name; ``None``: there is no later
    file. ``ends``: the open transaction ends with the next step.
    """

    def __init__(
        self,
        dump: Dump,
        encoder: Encoder,
        tables: Tables,
        prepared: Prepared,
        spool: Spool,
        delivered: MySqlDelivered | MariaDelivered,
        *,
        incarnation: int,
        file: int,
        server: str,
        mariadb: bool,
        check_file: Callable[[int, int, str], None],
        next_file: Callable[[int], str | None],
    ) -> None:
        self.encoder = encoder
        self.file = BinlogFile(encoder, file, "" if mariadb else server, partial(check_file, incarnation))
        self.gap: LogGap | None = None
        self.broken = BrokenShards(LogPosition(incarnation, file, 0))
        self.log_bytes = 0
        self.verified = False
        self.ends = False
        self._dump = dump
        self._tables = tables
        self._prepared = prepared
        self._spool = spool
        self._delivered = delivered
        self._incarnation = incarnation
        self._mariadb = mariadb
        self._next_file = next_file
        self._need: int | None = None  # size of the incomplete packet; 0: unknown; None: no packet is incomplete
        self._inner: list[tuple[Iterator[bytes | LargeEvent], bool]] = []
        self._rows: RowStream | None = None  # the undecoded rows of the last event
        self._rotate: Rotate | None = None
        self._unprepared: Xid | None = None
        self._statements = Statements(encoder, tables, mariadb=mariadb)
        self._apart = False  # the open transaction lacks updates and needs a segment of its own
        self._anchor: Anchor | None = None
        self._counted = (-1, 0, 0)  # the transaction that `_anchor` was made from
        encoder.checksums = dump.checksums

    @property
    def place(self) -> LogPosition:
        """The place after the last event."""
        return LogPosition(self._incarnation, self.file.number, self.encoder.file_offset)

    @property
    def arrived(self) -> int:
        """The bytes received after the place, which are of incomplete events."""
        return self._dump.arrived + self._spool.received

    @property
    def open_place(self) -> LogPosition:
        """The beginning of the open transaction."""
        return LogPosition(self._incarnation, self.file.number, self.encoder.tx_begin)

    def take_replaced(self) -> dict[str, LogPosition]:
        """The tables passed since the last call, for :attr:`wormhole.model.segment.Segment.replaced`."""
        return self._statements.take_replaced()

    @property
    def inside(self) -> bool:
        """Whether events or rows in the last event are still to be processed."""
        return bool(self._inner) or self._rows is not None

    @property
    def anchor(self) -> Anchor | None:
        """The transaction that ended last during this walk; ``None``: none ended."""
        encoder = self.encoder
        last = (encoder.last_source, encoder.last_number, encoder.last_end)
        if last != self._counted:
            self._counted = last
            begin = LogPosition(self._incarnation, self.file.number, encoder.last_begin)
            name = f"{encoder.sources.names[encoder.last_source]}:{encoder.last_number}"
            self._anchor = Anchor(name, encoder.last_checksum, begin)
        return self._anchor

    def step(self, max_bytes: int, wait_s: float) -> int:
        """Continue the walk. Returns a `Step`. Waits up to ``wait_s`` seconds if nothing is available.

        Raises :class:`DecodeError`, :class:`SourceUnavailable`, :class:`UnsupportedLog`, :class:`Diverged` or the
        server's error.
        """
        try:
            if self._rotate is not None:
                _ = self.anchor  # computed before the file ends
                rotate, self._rotate = self._rotate, None
                self.file.turn(rotate)
                return Step.PROGRESS
            if self.ends:
                self.ends = False
                self.encoder.end_transaction(0)
                return Step.CUT
            if self._apart and not self.encoder.in_transaction:
                self._apart = False
                return Step.CUT
            if self._unprepared is not None:
                return self._tell_lost(self._unprepared)
            if self._rows is not None:
                return self._go_through(self._rows, max_bytes)
            if self._inner:
                return self._go_inside(max_bytes)
            dump = self._dump
            if self._spool.open:
                return self._receive(wait_s)
            if self._need is not None or dump.at >= len(dump.data):
                if not dump.more(self._need or 0, wait_s):
                    return Step.END
                self._need = None
            end = len(dump.data)
            return self._packets(min(end, dump.at + self._packet_size()) if self._apart else end, max_bytes)
        except WormholeError as error:
            raise self._placed(error) from error.__cause__

    def close(self) -> None:
        """Discard the received part of an event."""
        self._spool.close()

    def one_packet(self) -> None:
        """Pass at most one packet, so that the walk stops at every place. Waits a short time if nothing is
        available."""
        if self._rotate is not None or self.inside or self._spool.open:
            self.step(1, _POLL_S)
            return
        try:
            end = self._next_packet()
            if end:
                self._packets(end, _LARGEST_EVENT)
        except WormholeError as error:
            raise self._placed(error) from error.__cause__

    def _placed(self, error: WormholeError) -> WormholeError:
        if isinstance(error, DecodeError) and error.hint is None:
            error.hint = _DAMAGED
        return error.at(position=str(self.place))

    # --- packets -------------------------------------------------------------------------------------------------

    def _packets(self, end: int, max_bytes: int) -> int:
        dump, encoder = self._dump, self.encoder
        at = dump.at
        self.verified = False
        try:
            dump.at = encoder.packets(dump.data, at, end, max_bytes)
        except DecodeError as error:
            dump.at = encoder.at
            return self._rows_failed(error)
        finally:
            self.log_bytes += dump.at - at
        status = encoder.status
        if status in (stops.EVENT, stops.TABLE):
            return self._handle(status, encoder.raw)
        if status == stops.ROWS:
            self._rows = _rest_of(encoder)
        elif status == stops.MORE:
            self._need = encoder.need
        elif status == stops.LARGE:
            self._spool.begin()
            dump.inside = True
        elif status == stops.ERROR:
            refused = dump.refused(encoder.raw)
            if not is_torn(refused) or not self._past_torn_file():
                raise refused
            return Step.CUT
        elif status == stops.END:
            raise SourceUnavailable(
                "the server ended the binlog stream", hint="it is opened again; is it shutting down?"
            )
        return Step.FULL if encoder.rows.updates.used >= max_bytes else Step.PROGRESS

    def _next_packet(self) -> int:
        """The end of the next packet if it is complete, or of its head if it is large; otherwise 0."""
        dump = self._dump
        need = self._packet_size()
        if len(dump.data) - dump.at < need:
            dump.more(need, _POLL_S)
            return 0
        return dump.at + need

    def _packet_size(self) -> int:
        """The size of the next packet, or of its head if it is large or incomplete."""
        data, at = self._dump.data, self._dump.at
        size = int.from_bytes(data[at : at + 3], "little") if len(data) - at >= _PACKET else 0
        return _PACKET + (size if size <= self.encoder.held else 0)

    def _go_inside(self, max_bytes: int) -> int:
        """Process the events that were in another event or were kept until now."""
        encoder = self.encoder
        depth = len(self._inner)
        inner, ends = self._inner[-1]
        for event in inner:
            try:
                if isinstance(event, bytes):
                    step = self._take(event)
                else:
                    encoder.large(event.header + bytes(events.CHECKSUM), events.HEADER + event.body.left, -1)
                    step = self._take_large(event)
            except DecodeError as error:
                step = self._rows_failed(error)
            if step != Step.PROGRESS or len(self._inner) != depth or self._rows is not None:
                return step
            if encoder.rows.updates.used >= max_bytes:
                return Step.FULL
        self._inner.pop()
        if ends:
            encoder.end_transaction(0)
        return Step.PROGRESS

    def _take(self, raw: bytes) -> int:
        """Process an event that is in memory."""
        encoder = self.encoder
        status = encoder.event(raw, 0, len(raw))
        if status == stops.ROWS:
            self._rows = _rest_of(encoder)
        return self._handle(status, raw) if status in (stops.EVENT, stops.TABLE) else Step.PROGRESS

    # --- events too large for memory -----------------------------------------------------------------------------

    def _receive(self, wait_s: float) -> int:
        """Receive more of an event into a file. When it is complete, its checksum is verified."""
        dump, spool, encoder = self._dump, self._spool, self.encoder
        if dump.at >= len(dump.data) and not dump.more(0, wait_s):
            return Step.END
        self.verified = False
        at = dump.at
        dump.at = spool.take(dump.data, at)
        self.log_bytes += dump.at - at
        if not spool.ended:
            return Step.PROGRESS
        dump.inside = False
        checksum = encoder.checksums and spool.header[_TYPE_AT] != events.FORMAT_DESCRIPTION
        event = LargeEvent(spool.header, spool.body(checksum))
        spool.open, spool.received = False, 0
        try:
            encoder.large(spool.header + spool.tail, spool.size, spool.crc)
            self.verified = checksum
            return self._take_large(event)
        except DecodeError as error:
            return self._rows_failed(error)

    def _take_large(self, event: LargeEvent) -> int:
        """Process a large event whose header the encoder has read."""
        encoder = self.encoder
        kind, body = event.header[_TYPE_AT], event.body
        rows = kind in ROWS_EVENTS or kind in _COMPRESSED_ROWS
        if encoder.ignores(kind, encoder.event_flags) or (rows and encoder.suppress and not encoder.collect):
            body.skip(body.left)
        elif rows and self._prepared.collecting:
            self._prepared.add_large(event)
        elif kind in ROWS_EVENTS:
            status = open_rows(encoder, kind, body)
            if status == stops.EVENT:
                return self._breaks(*self._tables.broken[encoder.table_id])
            if status == stops.ROWS:
                self._rows = RowStream(encoder, body)
        elif kind == events.TRANSACTION_PAYLOAD:
            self._inner.append((inflate(body, _LARGEST_EVENT, encoder.held), False))
        elif kind in COMPRESSED:
            return self._inflated(plain_event(event.header, body, _LARGEST_EVENT))
        elif kind in _STATEMENTS:
            cut = body.left > _LONGEST_STATEMENT
            return self._statement(event.header + body.take(_LONGEST_STATEMENT), cut=cut)
        elif kind in _LISTS and body.left <= _LARGEST_LIST:
            return self._take(with_length(event.header, body.left) + body.take(body.left))
        elif kind in _STATEMENT_PARTS or kind in _STATEMENT_FILES:
            body.skip(body.left)
        else:
            raise DecodeError(
                f"{events.name_of(kind)} of {body.left} bytes: events of this type are not that large",
                hint="the stream is damaged; it is opened again",
            )
        return Step.PROGRESS

    def _inflated(self, event: LargeEvent) -> int:
        """Process the uncompressed form of a compressed event."""
        body = event.body
        if body.left > self.encoder.held:
            return self._take_large(event)
        return self._take(event.header + body.take(body.left))

    def _go_through(self, rows: RowStream, max_bytes: int) -> int:
        """Decode more rows of the last event."""
        try:
            if rows.go(max_bytes):
                self._rows = None
        except DecodeError as error:
            self._rows = None
            return self._rows_failed(error)
        return Step.FULL if self.encoder.rows.updates.used >= max_bytes else Step.PROGRESS

    def _rows_failed(self, error: DecodeError) -> int:
        """Handle an event that could not be decoded. An error in one table breaks only that table's shards."""
        encoder = self.encoder
        if encoder.table_id < 0:
            raise error
        error.tables = (self._tables.schemas[encoder.table_schema].table,)
        return self._breaks(self._tables.names_of(encoder.table_shard), error)

    def _breaks(self, shards: Iterable[str], error: DecodeError) -> int:
        if self.encoder.suppress:
            return Step.PROGRESS
        return Step.CUT if self.broken.add(shards, error, self.open_place) else Step.PROGRESS

    # --- events that the encoder returns -------------------------------------------------------------------------

    def _handle(self, status: int, raw: bytes) -> int:
        kind, body, encoder = raw[4], raw[events.HEADER :], self.encoder
        self.verified = encoder.checksums and kind != events.FORMAT_DESCRIPTION
        if self._prepared.collecting and (kind in ROWS_EVENTS or kind in _COMPRESSED_ROWS or kind == events.TABLE_MAP):
            self._keep(raw)
        elif status == stops.TABLE:
            self._tables.learn(body, encoder, encoder.event_timestamp)
        elif kind in _STATEMENTS:
            return self._statement(raw[:_LONGEST_STATEMENT], cut=len(raw) > _LONGEST_STATEMENT)
        elif kind in ROWS_EVENTS:
            return self._breaks(*self._tables.broken[int.from_bytes(body[:6], "little")])
        elif kind == events.ROTATE:
            return self._rotates(parse_rotate(body))
        elif kind == events.FORMAT_DESCRIPTION:
            self.file.describe(raw)
        elif kind in (events.GTID_LIST, events.PREVIOUS_GTIDS):
            self.file.identify(raw)
            if kind == events.PREVIOUS_GTIDS and isinstance(self._delivered, MySqlDelivered):
                # A datamarker from a busy server may lack transactions that were being committed.
                self._delivered.include(GtidSet.decode(body))
        elif kind == events.GTID_TAGGED:
            tagged = parse_gtid_tagged(body)
            encoder.begin(encoder.sources.add(tagged.source), tagged.number, tagged.committed_at_us)
        elif kind == events.MARIADB_GTID:
            gtid = parse_mariadb_gtid(body)
            server = int.from_bytes(raw[5:9], "little")
            encoder.begin(
                encoder.sources.add(f"{gtid.domain}-{server}"), gtid.sequence, encoder.event_timestamp * 1_000_000
            )
            if gtid.flags & events.FL_PREPARED_XA:
                self._collect()
        elif kind == events.XA_PREPARE:
            self._prepare(parse_xa_prepare(body))
        elif kind == events.TRANSACTION_PAYLOAD:
            self._inner.append((inflate(_held(body), _LARGEST_EVENT, encoder.held), False))
        elif kind in COMPRESSED:
            return self._inflated(plain_event(raw[: events.HEADER], _held(body), _LARGEST_EVENT))
        elif encoder.suppress:
            pass  # a fault in this event affects no reader
        elif kind == events.INCIDENT:
            incident = parse_incident(body)
            raise DecodeError(
                f"the server lost changes and reports it in its log (incident {incident.number}: {incident.message})",
                hint="look at the server's error log; start the application anew behind this place, from a copy of "
                "the tables",
            )
        elif kind not in _STATEMENT_PARTS | _STATEMENT_FILES | _OF_FILES:
            raise DecodeError(
                f"{events.name_of(kind)} is not known",
                hint="a newer server than this release knows: look for a newer one",
                code="release-too-old",
            )
        return Step.PROGRESS

    def _statement(self, raw: bytes, *, cut: bool = False) -> int:
        """Process a statement. ``cut``: only its beginning is available."""
        encoder = self.encoder
        alone = bool(encoder.gtid_flags & events.FL_STANDALONE) if self._mariadb else not encoder.begun
        body = raw[events.HEADER :]
        query = parse_query(parse_load_query(body) if raw[_TYPE_AT] == _LOAD_QUERY else body, generated=not alone)
        statement = self._statements.read(query, alone=alone, cut=cut)
        kind = statement.kind
        if kind is Kind.XA_START:
            self._collect()
        elif kind is Kind.XA_COMMIT:
            if statement.xid is None:
                return self._lacks(self._statements.lost_xa(query.sql), ends=True)
            return self._commit(statement.xid)
        elif kind is Kind.XA_ROLLBACK:
            if statement.xid is not None:
                self._prepared.drop(statement.xid)
            encoder.end_transaction(0)
        elif kind is Kind.COMMIT:
            encoder.end_transaction(0)
        elif kind is Kind.ROLLBACK:
            self._drop_open()
            self._statements.rolled_back()
            encoder.end_transaction(0)
        elif kind is Kind.DML:
            return self._lacks(self._statements.changed(query, prepared=self._prepared.collecting), ends=alone)
        elif kind in _SAVEPOINTS:
            if self._prepared.collecting:
                self._keep(raw)
            elif not encoder.suppress:
                return self._lacks(self._statements.savepoint(statement), ends=False)
        elif kind in _NO_CHANGE:
            pass
        else:
            self._statements.remove_rows(statement)
            self._statements.note_replaced(statement, query, self.open_place)
            missing = self._statements.unread(statement, query.sql) if statement.unread else None
            return self._lacks(missing, ends=alone and not statement.rows_follow)
        return Step.PROGRESS

    def _lacks(self, missing: tuple[set[str], DecodeError] | None, *, ends: bool) -> int:
        """Record the shards whose updates the transaction lacks, if any. ``ends``: the transaction ends here.

        A transaction that lacks an update gets its own segment, so that a flow that skips it skips nothing else.
        """
        step = Step.PROGRESS if missing is None else self._breaks(*missing)
        if missing is not None and not self.encoder.suppress:
            self.ends, self._apart = ends, not ends
            return Step.CUT
        if ends:
            self.encoder.end_transaction(0)
        return step

    # --- XA --------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        self.encoder.collect = True
        self._prepared.begin(self.open_place)

    def _prepare(self, ended: XaPrepare) -> None:
        if not self._prepared.collecting:
            raise DecodeError(f"the XA transaction {ended.xid} is prepared and has not begun")
        self.encoder.collect = False
        if not ended.one_phase:
            self._prepared.keep(ended.xid)
        elif self.encoder.suppress:
            self._prepared.drop_open()
        else:
            self._inner.append((self._prepared.release_open(), True))
            return
        self.encoder.end_transaction(0)

    def _commit(self, xid: Xid) -> int:
        encoder = self.encoder
        if encoder.suppress:
            self._prepared.drop(xid)
            encoder.end_transaction(0)
            return Step.PROGRESS
        kept = self._prepared.release(xid)
        if kept is None:
            self._unprepared = xid
            return Step.CUT
        self._inner.append((kept, True))
        return Step.PROGRESS

    def _tell_lost(self, xid: Xid) -> int:
        encoder = self.encoder
        name = self._statements.open_name
        encoder.end_transaction(0)
        self._unprepared = None
        self.gap = LogGap(
            LossKind.PURGED,
            name,
            name,  # the reader adds the delivered position
            f"the XA transaction {xid} was committed by {name}, and what it prepared was logged before the "
            "place from which this log is read",
        )
        return Step.CUT

    # --- files -----------------------------------------------------------------------------------------------------

    def _rotates(self, rotate: Rotate) -> int:
        encoder = self.encoder
        if self.file.is_at(rotate):
            return Step.PROGRESS
        if encoder.in_transaction:
            if not encoder.suppress:
                _log.warning(
                    "the transaction %s, which begins at %s, is not whole in the log: the server ended while it wrote "
                    "it, and rolled it back when it started again. It is not delivered. Next: if sync_binlog was not 1 "
                    "and the machine crashed, compare the tables with the copies",
                    self._statements.open_name,
                    self.open_place,
                )
            self._drop_open(lost=True)
        self._rotate = rotate  # the next step goes there; a piece is of one file, and a file's end is a place too
        return Step.CUT

    def _past_torn_file(self) -> bool:
        """Continue with the next file after a file that ends within an event, as the server did.

        Returns whether a next file exists."""
        following = self._next_file(self.file.number)
        if following is None:
            return False
        self.encoder.checksums = self._dump.checksums
        self._rotates(Rotate(following, _FIRST_OFFSET))
        return True

    def _drop_open(self, *, lost: bool = False) -> None:
        """Drop the open transaction, which was rolled back. ``lost``: the server crashed while writing it."""
        encoder = self.encoder
        encoder.collect = False
        self._prepared.drop_open()
        self._inner.clear()
        self._rows = None
        encoder.discard(close=lost)

    def _keep(self, raw: bytes) -> None:
        """Keep an event of the group being collected. Its header is rewritten, because the event has no checksum any
        more.
        """
        self._prepared.add(raw[:9] + len(raw).to_bytes(4, "little") + raw[13:])


def _rest_of(encoder: Encoder) -> RowStream:
    """A stream of the rows that the encoder left of an event in memory."""
    return RowStream(encoder, _held(encoder.raw))


def _held(data: bytes) -> Body:
    return Body(io.BytesIO(data).read, len(data))
