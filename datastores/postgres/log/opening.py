"""Opens a reader at a datamarker: copies the nearest slot, and proves that the log is still the same.

The server sends the anchor's transaction again. It is compared with the anchor and not delivered.

A marker of an earlier incarnation is found by its LSN if its timeline is part of the present timeline's history. It is
proven in the same way. The log must also still hold everything that was read after the marker, because that may have
been delivered.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from datastores.postgres.decode.catalogue_keys import CatalogueKey, LoggedKeys
from datastores.postgres.decode.encoder import COMMIT, Encoder
from datastores.postgres.decode.encodings import Encoding
from datastores.postgres.decode.messages import Relation, begins_behind
from datastores.postgres.decode.tables import Tables
from datastores.postgres.history.delivered_transactions import DeliveredTransactions
from datastores.postgres.history.incarnations import History, Incarnations
from datastores.postgres.history.proof import (
    GONE,
    check_log_bytes,
    diverged,
    log_bytes_anchor,
    transaction_anchor,
)
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.log import slots
from datastores.postgres.log.reader import WalReader
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Connection, connect, understood
from datastores.postgres.server.lsn import format_delivered, format_lsn, parse_delivered
from datastores.postgres.server.state import ServerState, Slot, check_same
from datastores.postgres.server.stream import KEEPALIVE, LOG_DATA, Stream, keepalive_end
from datastores.postgres.sql_text import quote_identifier, quote_literal
from datastores.postgres.tables.keys import SeenKeys, logged_keys_until, read_key
from datastores.postgres.tables.publication import SILENT_SINCE, Publication
from datastores.postgres.tables.unlogged_changes import UnloggedChanges
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.ports.datastore import SourceOptions

__all__ = ["MESSAGES_SINCE", "Log", "Opening"]

_COPY_TRIES: Final = 3
MESSAGES_SINCE: Final = 140000
"""The first server version whose pgoutput can send logical messages."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Log:
    """The state of the log when last read from the server."""

    state: ServerState
    history: History
    timelines: Timelines

    def place(self, lsn: int) -> LogPosition:
        """The place of ``lsn`` in the present incarnation."""
        return LogPosition(self.history.number, 0, lsn)

    @property
    def end(self) -> int:
        """The end of the flushed log, which survives a failure of the server."""
        return min(self.state.end, self.state.flushed)

    @property
    def torn(self) -> bool:
        """Whether a record may extend past :attr:`end`. The server writes whole pages, and a record may begin on one
        page and end on the next."""
        return self.state.flushed < self.state.end and self.state.flushed % self.state.page_bytes == 0

    def marker(self, lsn: int) -> Datamarker:
        """A datamarker at ``lsn``, without a proof."""
        place = self.place(lsn)
        return Datamarker(place, format_delivered(self.timelines.of(lsn), lsn), place)


class Opening:
    """Opens the readers of one source.

    ``published_from``: see :class:`~datastores.postgres.log.reader.WalReader`. ``opened`` and ``ended`` are called with
    each stream. Between these calls the walsender of the stream needs answers. ``delivered`` gets the transactions that
    readers deliver. ``unlogged``: the changes that the log does not show, which readers report.
    """

    def __init__(
        self,
        address: Address,
        options: SourceOptions,
        incarnations: Incarnations,
        publication: Publication,
        *,
        published_from: Callable[[int], int],
        opened: Callable[[Stream], None],
        ended: Callable[[Stream], None],
        delivered: DeliveredTransactions,
        unlogged: UnloggedChanges,
    ) -> None:
        self._address = address
        self._options = options
        self._incarnations = incarnations
        self._publication = publication
        self._published_from = published_from
        self._opened = opened
        self._ended = ended
        self._delivered = delivered
        self._unlogged = unlogged
        self._seen_keys = SeenKeys()

    def observe(self, log: Log) -> None:
        """Record the keys in ``log``."""
        self._seen_keys.note(log.history.number, log.state.end, log.state.unlogged_keys)

    def open(
        self,
        log: Log,
        marker: Datamarker,
        passed: Callable[[Datamarker], None],
        closed: Callable[[WalReader], None],
    ) -> WalReader:
        """See :meth:`wormhole.ports.log_source.LogSource.open`."""
        here = self._translated(log, marker)
        self._check_proof_bytes(log, marker, here)
        stream = self._stream(log, here)
        try:
            tables, encoder = self._decoder(log, stream.encoding)
            unread = self._pass_anchor(log, marker, here, stream, encoder)
            self._check_read(log, marker)
        except BaseException:
            self._end(stream)
            raise

        def close(reader: WalReader) -> None:
            self._ended(stream)
            closed(reader)

        prove = partial(log_bytes_anchor, self._address, log.state, log.timelines)
        anchor = prove(here.order) if here.anchor is None else here.anchor
        if anchor is not None and anchor.is_of_log_bytes:
            # Without this anchor a restored copy cannot be distinguished until something is written.
            passed(replace(here, read_from=min(here.order, anchor.begin), anchor=anchor))
        return WalReader(
            stream,
            encoder,
            tables,
            here,
            log.history,
            log.timelines,
            unread=unread,
            passed=passed,
            closed=close,
            published_from=self._published_from,
            silent=(self._publication.until, self._publication.since) if log.state.version >= SILENT_SINCE else (0, 0),
            prove=prove,
            delivered=self._delivered,
            unlogged=self._unlogged,
        )

    def verify(self, log: Log, marker: Datamarker) -> None:
        """Prove the marker without opening a reader. Raises as :meth:`open`."""
        here = self._translated(log, marker)
        self._check_proof_bytes(log, marker, here)
        if marker.anchor is not None and not marker.anchor.is_of_log_bytes:
            stream = self._stream(log, here)
            try:
                _, encoder = self._decoder(log, stream.encoding)
                self._pass_anchor(log, marker, here, stream, encoder)
            finally:
                self._end(stream)

    # --- places ---------------------------------------------------------------------------------------------------

    def _translated(self, log: Log, marker: Datamarker) -> Datamarker:
        """The marker in the present incarnation. Raises :class:`~wormhole.model.errors.Diverged`."""
        order, history = marker.order, log.history
        if order.incarnation != history.number:
            before = self._incarnations.find(order.incarnation)
            if before is None:
                raise diverged(
                    marker, f"incarnation {order.incarnation} was never seen here; the log is in {history.number}"
                )
            timeline, lsn = parse_delivered(marker.delivered)
            if before.system != log.state.system or not log.timelines.holds(timeline, lsn):
                raise _not_in(log, marker, timeline if before.system == log.state.system else 0)
            if marker.anchor is None and history.timeline == before.timeline:
                raise diverged(marker, f"{history.why}; the marker has no transaction that could be compared")
            order = log.place(lsn)
        if order.file or order.offset > log.state.end:
            raise diverged(marker, f"the log ends at {log.place(log.state.end)} ({format_lsn(log.state.end)})")
        anchor = marker.anchor
        if anchor is not None:
            anchor = replace(anchor, begin=log.place(anchor.begin.offset))
        return replace(marker, order=order, read_from=order, anchor=anchor)

    def _slot(self, log: Log, marker: Datamarker, begin: int) -> Slot:
        """The slot whose copy can send the log from ``begin`` on. Raises
        :class:`~wormhole.model.errors.PositionPurged`.

        The log bytes of an anchor are read without a slot, and may precede every slot.
        """
        present = slots.usable(log.state, self._address.slot, self._address.database)
        slot = slots.nearest(present, begin)
        if slot is None:
            first = present[0].confirmed
            raise PositionPurged(
                f"the replication slot {present[0].name} begins at {format_lsn(first)}, beyond the datamarker "
                f"{marker}: the server does not send what lies between",
                first_missing=marker.delivered,
                last_missing=format_delivered(log.timelines.of(first), first),
                position=str(marker.order),
                hint="replay from an archive, or `wormholectl flows accept-loss APP/SHARD` goes on where the slot is; "
                "see that no other process advances it",
                code="marker-purged",
            )
        return slot

    # --- the session ----------------------------------------------------------------------------------------------

    def _decoder(self, log: Log, encoding: Encoding) -> tuple[Tables, Encoder]:
        options = self._options
        find_key, find_logged = partial(self._find_key, log.state), partial(self._find_logged, log.state)
        tables = Tables(options.log, options.sharding, options.skip_tables, find_key, find_logged, encoding)
        count = options.sharding.count if options.sharding.by == "hash" else 0
        return tables, Encoder(tables, options.max_update_bytes, count)

    def _find_key(self, state: ServerState, relation: Relation, commit: int) -> CatalogueKey | None:
        with self._catalogue(state) as connection:
            return read_key(connection, relation.id, commit, self._seen_keys)

    def _find_logged(self, state: ServerState) -> tuple[int, LoggedKeys]:
        with self._catalogue(state) as connection:
            return logged_keys_until(connection)

    @contextmanager
    def _catalogue(self, state: ServerState) -> Iterator[Connection]:
        """A session for a query during a transaction.

        It must reach the server of ``state``, not restarted since, because a restored copy may have other tables. A
        failure ends the reader, which is then opened again at a datamarker. So no table is ever decoded without the
        query's answer.
        """
        connection = connect(self._address)
        try:
            check_same(connection, self._address, state)
            with understood(self._address):
                yield connection
        finally:
            connection.close()

    def _stream(self, log: Log, marker: Datamarker) -> Stream:
        """The log from the anchor's commit on, or from the end of the anchor's log bytes."""
        anchor = marker.anchor
        begin = marker.order if anchor is None else anchor.begin
        if anchor is not None and anchor.is_of_log_bytes:
            begin = log.place(anchor.log_bytes_end)
        slot = self._slot(log, marker, begin.offset)
        walsender = connect(self._address, walsender=True)
        try:
            check_same(walsender, self._address, log.state)
            name = self._copy(walsender, slot)
            messages = ", messages 'true'" if walsender.version >= MESSAGES_SINCE else ""
            walsender.start_copy(
                f"START_REPLICATION SLOT {quote_identifier(name)} LOGICAL {format_lsn(begin.offset)} "
                f"(proto_version '1', "
                f"publication_names {quote_literal(quote_identifier(self._address.publication))}{messages})"
            )
        except BaseException:
            walsender.close()
            raise
        stream = Stream(walsender, begin.offset)
        self._opened(stream)
        return stream

    def _copy(self, walsender: Connection, slot: Slot) -> str:
        for attempt in range(1, _COPY_TRIES + 1):
            name = f"{self._address.slot}_{os.getpid()}_{secrets.token_hex(2)}_{next(_numbers)}"[-63:]
            try:
                slots.copy(walsender, slot, name)
            except SourceUnavailable:
                # The slot was advanced just now.
                if attempt == _COPY_TRIES or not walsender.is_open:
                    raise
            else:
                return name
        raise AssertionError("unreachable")

    def _end(self, stream: Stream) -> None:
        stream.close()
        self._ended(stream)

    # --- the proof ------------------------------------------------------------------------------------------------

    def _check_proof_bytes(self, log: Log, marker: Datamarker, here: Datamarker) -> None:
        if here.anchor is not None and here.anchor.is_of_log_bytes:
            self._slot(log, here, here.anchor.log_bytes_end)  # raises if no slot keeps the bytes
            check_log_bytes(
                self._address, log.state, log.timelines, replace(marker, anchor=here.anchor), here.order.offset
            )

    def _pass_anchor(
        self, log: Log, marker: Datamarker, here: Datamarker, stream: Stream, encoder: Encoder
    ) -> list[bytes]:
        """Read the anchor's transaction again. Returns the messages received after it.

        Raises :class:`~wormhole.model.errors.Diverged` if the log has another transaction or none at this place.
        """
        anchor = here.anchor
        if anchor is None:
            return []
        encoder.suppress = True
        if anchor.is_of_log_bytes:
            unread = self._pass_nothing(marker, here.order.offset, anchor.log_bytes_end, stream, encoder)
            encoder.suppress = False
            return unread
        while True:
            messages = stream.receive(1.0)
            for at, message in enumerate(messages):
                if message[0] == LOG_DATA and encoder.add(message) == COMMIT:
                    found = transaction_anchor(
                        f"{log.state.system}:{log.timelines.of(encoder.last_commit + 1)}",
                        encoder.last_commit,
                        encoder.last_checksum,
                        log.history.number,
                    )
                    if found != anchor:
                        raise _another(marker, anchor, found)
                    encoder.suppress = False
                    return messages[at + 1 :]
                if (
                    message[0] == KEEPALIVE
                    and keepalive_end(message) >= here.order.offset
                    and not encoder.in_transaction
                ):
                    raise _another(marker, anchor, None)

    def _check_read(self, log: Log, marker: Datamarker) -> None:
        """Raise :class:`~wormhole.model.errors.Diverged` if the log lacks changes that were read after the marker, in
        its incarnation or in a later ended one.
        """
        for ended in self._incarnations.ended_since(marker.order.incarnation):
            if not ended.read:
                continue
            timeline, lsn = parse_delivered(ended.read)
            if ended.number == marker.order.incarnation and lsn <= marker.order.offset:
                continue
            same = ended.system == log.state.system
            if same and not ended.gone and log.timelines.holds(timeline, lsn):
                continue
            end = log.timelines.end_of(timeline) if same else None
            raise Diverged(
                f"the log was read up to {ended.read} in incarnation {ended.number}, behind the datamarker {marker}; "
                "what this server lacks of that may have been delivered although it was not acknowledged, and no log "
                "holds it any more",
                first_missing=marker.delivered if end is None or end >= lsn else format_delivered(timeline, end),
                last_missing=ended.read,
                resume=marker.delivered,
                position=str(marker.order),
                hint=GONE,
            )

    def _pass_nothing(
        self, marker: Datamarker, place: int, begin: int, stream: Stream, encoder: Encoder
    ) -> list[bytes]:
        """Read from ``begin`` to ``place``. Returns the messages received after ``place``.

        Raises :class:`~wormhole.model.errors.Diverged` if a transaction lies in between.
        """
        while begin < place:
            messages = stream.receive(1.0)
            for at, message in enumerate(messages):
                if message[0] == KEEPALIVE:
                    begin = max(begin, keepalive_end(message))
                elif message[0] == LOG_DATA and begins_behind(message, place):
                    return messages[at:]
                elif message[0] == LOG_DATA and encoder.add(message) == COMMIT:
                    there = format_lsn(encoder.last_commit)
                    raise diverged(marker, f"the server has a transaction at {there}, where none was")
                if begin >= place:
                    return messages[at + 1 :]
        return []


def _not_in(log: Log, marker: Datamarker, timeline: int) -> Diverged:
    """The error for a marker that is not in this log. ``timeline``: the marker's; 0: of another server."""
    why, end = log.history.why or str(log.state), log.timelines.end_of(timeline)
    if end is None:
        return diverged(marker, why)
    return diverged(
        marker,
        f"{why}; the server has timeline {timeline} up to {format_lsn(end)}, and lacks what was delivered behind that",
        first_missing=format_delivered(timeline, end),
        last_missing=marker.delivered,
    )


def _another(marker: Datamarker, anchor: Anchor, found: Anchor | None) -> Diverged:
    there = "none is there" if found is None else f"the server has {found.id} there, with another checksum"
    return diverged(marker, f"the last transaction before it is {anchor.id}, and {there}")
