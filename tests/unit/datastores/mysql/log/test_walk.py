"""Walking the events of a log, prepared XA transactions included."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.mysql.decode import events
from datastores.mysql.decode.large_event import Body, LargeEvent, with_length
from datastores.mysql.decode.rare_events import Xid
from datastores.mysql.log.prepared_xa import Prepared
from datastores.mysql.log.walk import Step
from tests.support import mysql_events as build
from tests.support.given import given
from tests.support.mysql_dump import (
    TORN,
    Scripted,
    beginning,
    format_description,
    go,
    insert,
    refuse,
    rotate,
    table,
    walked,
    xa_prepare,
)
from wormhole.model.errors import DecodeError, UnsupportedLog
from wormhole.model.position import LogPosition
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

# --- walk ---


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_transaction_however_it_is_received(tmp_path: Path, piece: int) -> None:
    stream = beginning()
    begin = stream.offset
    stream.transaction(5, table(), insert(1, 2))
    scripted = walked(tmp_path, stream, piece=piece)
    walk = scripted.walk
    assert walk.place == LogPosition(1, 3, stream.offset)
    assert walk.anchor is not None
    assert (walk.anchor.id, walk.anchor.begin) == (f"{build.UUID_TEXT}:5", LogPosition(1, 3, begin))
    assert walk.log_bytes == len(stream.packets())
    assert scripted.seen == [(1, 3, "1700000000-1")]
    piece_of_log = scripted.encoder.take()
    assert len(piece_of_log.ends) == 2
    assert list(piece_of_log.tx_offset) == [stream.offset]


def test_the_end_of_a_file_is_a_place_of_its_own(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    rotate(stream, "binlog.000004", 4, artificial=False)
    end = stream.offset
    scripted = Scripted(tmp_path, stream)
    walk = scripted.walk
    while walk.step(1 << 20, 0.0) != Step.CUT or walk.place.offset == 4:
        pass
    assert walk.place == LogPosition(1, 3, end)
    go(scripted)
    assert walk.place == LogPosition(1, 4, 4)
    assert given(walk.anchor).begin.file == 3


@pytest.mark.parametrize("sql", ["TRUNCATE TABLE t", "COMMIT", "ROLLBACK", "XA ROLLBACK X'78',X'',1"])
def test_a_statement_that_no_transaction_has_begun_for_is_damage(tmp_path: Path, sql: str) -> None:
    stream = beginning()
    stream.add(build.QUERY, build.query(sql))
    with pytest.raises(DecodeError, match="has begun") as error:
        go(Scripted(tmp_path, stream))
    assert error.value.position
    assert error.value.hint


def test_a_statement_that_is_a_transaction_and_its_barriers(tmp_path: Path) -> None:
    stream = beginning()
    stream.statement(1, "TRUNCATE TABLE t")
    stream.statement(2, "ALTER TABLE t ADD x INT")
    stream.statement(3, "DROP TABLE a, other.b")
    scripted = walked(tmp_path, stream, sharding=Sharding("table"))
    piece = scripted.encoder.take()
    assert [scripted.tables.schemas[i].table for i in piece.schema_of] == ["shop.t", "shop.a", "other.b"]
    assert [scripted.tables.shards[i] for i in piece.shard_of] == ["log.shop.t", "log.shop.a", "log.other.b"]
    assert list(piece.tx_number) == [1, 3]
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1, 2, 3]


def test_a_statement_inside_of_a_transaction_does_not_end_it(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, (build.QUERY, build.query("CREATE TABLE t (id INT) START TRANSACTION")), table(), insert(1))
    stream.transaction(2, (build.QUERY, build.query("DROP TEMPORARY TABLE x")), table(), insert(2))
    assert list(walked(tmp_path, stream).encoder.take().tx_number) == [1, 2]


def test_what_is_rolled_back_is_an_empty_transaction(tmp_path: Path) -> None:
    stream = beginning()
    stream.open(1, table(), insert(1))
    stream.add(build.QUERY, build.query("ROLLBACK"))
    scripted = walked(tmp_path, stream)
    assert not scripted.encoder.rows.updates.count
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1]


def undone(stream: build.Stream, number: int = 1) -> None:
    """A transaction of MariaDB up to where it goes back to a savepoint."""
    stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, number, events.FL_TRANSACTIONAL))
    stream.add_all(
        (build.TABLE_MAP, table()[1]),
        insert(1),
        (build.QUERY, build.query("SAVEPOINT `a`")),
        (build.TABLE_MAP, table()[1]),
        insert(2),
        (build.QUERY, build.query("SAVEPOINT `b`")),
        insert(3),
        (build.QUERY, build.query("ROLLBACK TO `A`")),
    )


def test_what_was_undone_since_a_savepoint_is_not_handed_on(tmp_path: Path) -> None:
    stream = beginning()
    undone(stream)
    stream.add(*insert(4))
    stream.add(build.XID, bytes(8))
    scripted = walked(tmp_path, stream, mariadb=True)
    piece = scripted.encoder.take()
    assert piece.blob == b"".join(entry(encode_row(Op.INSERT, (n,), after=(n, f"n{n}"))) for n in (1, 4))
    assert list(piece.tx_end) == [2]


def test_a_rollback_after_a_part_was_handed_on_ends_nothing(tmp_path: Path) -> None:
    stream = beginning()
    undone(stream)
    scripted = walked(tmp_path, stream, mariadb=True)
    scripted.encoder.take()
    more = build.Stream(offset=stream.offset)
    more.add(build.QUERY, build.query("ROLLBACK"))
    scripted.dump.feed(more.packets())
    go(scripted)
    piece = scripted.encoder.take()
    assert (len(piece.tx_number), len(piece.ends), scripted.encoder.first_index) == (0, 0, 0)
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1]


def test_what_was_undone_after_it_was_handed_on_is_an_error(tmp_path: Path) -> None:
    stream = beginning()
    undone(stream)
    stream.add(*insert(4))
    scripted = walked(tmp_path, stream, mariadb=True)
    scripted.encoder.take()
    more = build.Stream(offset=stream.offset)
    more.add(build.QUERY, build.query("ROLLBACK TO `a`"))
    scripted.dump.feed(more.packets())
    with pytest.raises(DecodeError, match=r"0-1:1 .*delivered") as error:
        go(scripted)
    assert error.value.hint


def test_a_savepoint_that_was_never_set(tmp_path: Path) -> None:
    stream = beginning()
    undone(stream)
    stream.add(build.XID, bytes(8))
    stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 2, events.FL_TRANSACTIONAL))
    stream.add(build.QUERY, build.query("ROLLBACK TO a"))
    scripted = walked(tmp_path, stream, mariadb=True)
    assert "never set" in str(scripted.walk.broken["log"])
    assert scripted.walk.broken["log"].update_id == "0-1:2:0"


def test_a_torn_transaction_is_dropped_with_its_number(tmp_path: Path) -> None:
    stream = beginning()
    stream.open(1, table(), insert(1))
    rotate(stream, "binlog.000004", 4)
    stream.offset = 4
    format_description(stream)
    stream.transaction(1, table(), insert(2))
    scripted = walked(tmp_path, stream)
    piece = scripted.encoder.take()
    assert list(piece.tx_number) == [1]
    assert len(piece.ends) == 1
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1]


def open_transaction(number: int, *ids: int) -> build.Stream:
    """A file that ends in the middle of a transaction."""
    stream = beginning()
    stream.open(number, table(), insert(*ids))
    return stream


def file_four(number: int) -> build.Stream:
    stream = beginning("binlog.000004")
    stream.transaction(number, table(), insert(9))
    return stream


def test_a_torn_transaction_of_which_a_part_was_handed_on_leaves_nothing_behind(tmp_path: Path) -> None:
    stream = open_transaction(1, 1)
    scripted = walked(tmp_path, stream)
    scripted.encoder.take()
    more = build.Stream()
    rotate(more, "binlog.000004", 4)
    scripted.dump.feed(more.packets())
    assert go(scripted) == [Step.CUT]
    assert scripted.walk.place == LogPosition(1, 4, 4)
    assert not scripted.encoder.in_transaction
    rest = build.Stream(offset=4)
    format_description(rest)
    rest.transaction(1, table(), insert(9))
    scripted.dump.feed(rest.packets())
    go(scripted)
    piece = scripted.encoder.take()
    assert (list(piece.tx_number), list(piece.tx_end), scripted.encoder.first_index) == ([1], [1], 0)


def test_a_file_that_ends_in_the_middle_of_an_event_is_gone_past(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, open_transaction(1, 1, 2))
    begin = scripted.walk.place
    go(scripted)
    scripted.next_files[3] = ("binlog.000004", file_four(2))
    scripted.dump.feed(refuse(TORN))
    places = []
    while (step := scripted.walk.step(1 << 20, 0.0)) != Step.END:
        if step == Step.CUT:
            places.append(scripted.walk.place)
    assert places[0].file == 3
    assert places[0] > begin
    assert scripted.walk.place.file == 4
    assert list(scripted.encoder.take().tx_number) == [2]
    assert list(scripted.encoder.transactions.take_passed()[1]) == [2]


def test_the_newest_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    scripted = walked(tmp_path, open_transaction(1, 1))
    scripted.dump.feed(refuse(TORN))
    with pytest.raises(DecodeError, match="truncated") as error:
        go(scripted)
    assert error.value.hint


class TestXa:
    def prepared(self, number: int, gtrid: str, *ids: int) -> list[tuple[int, bytes]]:
        name = f"X'{gtrid.encode().hex()}',X'',1"
        return [
            (build.GTID, build.gtid(build.UUID, number)),
            (build.QUERY, build.query(f"XA START {name}")),
            table(),
            insert(*ids),
            (build.QUERY, build.query(f"XA END {name}")),
        ]

    def test_comes_with_its_commit(self, tmp_path: Path) -> None:
        stream = beginning()
        begin = stream.offset
        stream.add_all(*self.prepared(1, "a", 1, 2), (events.XA_PREPARE, xa_prepare(b"a")))
        stream.transaction(2, table(), insert(3))
        stream.add(build.GTID, build.gtid(build.UUID, 3))
        scripted = walked(tmp_path, stream)
        assert str(scripted.prepared.oldest) == f"1/3/{begin}"
        more = build.Stream(offset=stream.offset)
        more.add(build.QUERY, build.query("XA COMMIT X'61',X'',1"))
        scripted.dump.feed(more.packets())
        go(scripted)
        assert scripted.prepared.oldest is None
        piece = scripted.encoder.take()
        assert (list(piece.tx_number), list(piece.tx_end)) == ([2, 3], [1, 3])
        assert list(scripted.encoder.transactions.take_passed()[1]) == [1, 2, 3]

    def test_in_one_phase(self, tmp_path: Path) -> None:
        stream = beginning()
        stream.add_all(*self.prepared(1, "a", 1, 2), (events.XA_PREPARE, xa_prepare(b"a", one_phase=True)))
        scripted = walked(tmp_path, stream)
        piece = scripted.encoder.take()
        assert (list(piece.tx_number), list(piece.tx_end)) == ([1], [2])

    def test_rolled_back(self, tmp_path: Path) -> None:
        stream = beginning()
        stream.add_all(*self.prepared(1, "a", 1), (events.XA_PREPARE, xa_prepare(b"a")))
        stream.statement(2, "XA ROLLBACK X'61',X'',1")
        scripted = walked(tmp_path, stream)
        assert scripted.prepared.oldest is None
        assert not scripted.encoder.rows.updates.count

    def test_a_commit_of_what_was_never_seen_is_missing_log(self, tmp_path: Path) -> None:
        stream = beginning()
        stream.statement(2, "XA COMMIT X'61',X'',1")
        scripted = Scripted(tmp_path, stream)
        assert go(scripted)[-2:] == [Step.CUT, Step.CUT]
        gap = given(scripted.walk.gap)
        assert gap.first_missing == f"{build.UUID_TEXT}:2"
        assert "X'61'" in gap.message
        assert not scripted.encoder.in_transaction

    def test_of_mariadb(self, tmp_path: Path) -> None:
        stream = beginning()
        xid = b"\1\0\0\0\1\0a"
        gtid = build.mariadb_gtid(0, 1, events.FL_PREPARED_XA)[:13]
        stream.add(build.MARIADB_GTID, gtid + xid)
        stream.add_all(table(), insert(1), (events.XA_PREPARE, xa_prepare(b"a")))
        stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 2, events.FL_COMPLETED_XA)[:13] + xid)
        stream.add(build.QUERY, build.query("XA COMMIT X'61',X'',1"))
        scripted = walked(tmp_path, stream, mariadb=True)
        piece = scripted.encoder.take()
        assert (list(piece.tx_number), list(piece.tx_end)) == ([2], [1])
        assert given(scripted.walk.anchor).id == "0-1:2"


class TestRefused:
    def read(self, tmp_path: Path, *parts: tuple[int, bytes]) -> None:
        stream = beginning()
        stream.transaction(1, *parts)
        go(Scripted(tmp_path, stream))

    @pytest.mark.parametrize("sql", ["INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t WHERE a"])
    def test_statements(self, tmp_path: Path, sql: str) -> None:
        with pytest.raises(UnsupportedLog, match="statement") as error:
            self.read(tmp_path, (build.QUERY, build.query(sql)))
        assert "binlog_format = ROW" in (error.value.hint or "")
        assert error.value.position

    def test_load_data(self, tmp_path: Path) -> None:
        """The file's content changes nothing, the statement behind it does."""
        load = build.query("LOAD DATA INFILE 'x' INTO TABLE t")
        self.read(tmp_path, (17, bytes(30)), (9, bytes(30)), (11, bytes(4)))
        with pytest.raises(UnsupportedLog, match="LOAD DATA"):
            self.read(tmp_path, (17, bytes(30)), (18, load[:13] + bytes(13) + load[13:]))

    def test_an_incident(self, tmp_path: Path) -> None:
        with pytest.raises(DecodeError, match="lost changes") as error:
            self.read(tmp_path, (events.INCIDENT, b"\1\0\4oops"))
        assert "oops" in str(error.value)
        assert error.value.hint

    def test_an_unknown_event(self, tmp_path: Path) -> None:
        with pytest.raises(DecodeError, match="type 99") as error:
            self.read(tmp_path, (99, b""))
        assert error.value.hint

    def test_an_encrypted_log_is_none(self, tmp_path: Path) -> None:
        """MariaDB decrypts what it sends; how the file is encrypted it may tell all the same."""
        self.read(tmp_path, (events.START_ENCRYPTION, bytes(17)))


class TestBroken:
    def test_a_table_without_names_breaks_its_shard_and_the_rest_goes_on(self, tmp_path: Path) -> None:
        stream = beginning()
        stream.transaction(1, table("shop.t"), insert(1))
        begin = stream.offset
        stream.transaction(2, table("bad.t", names=False, table_id=8), insert(1, table_id=8), insert(2, table_id=8))
        stream.transaction(3, table("shop.t"), insert(2))
        scripted = Scripted(tmp_path, stream, sharding=Sharding("database"))
        assert go(scripted) == [Step.CUT]
        assert list(scripted.walk.broken) == ["log.bad"]
        assert scripted.walk.broken.at == LogPosition(1, 3, begin)
        assert list(scripted.encoder.take().tx_number) == [1, 3]

    def test_rows_that_cannot_be_decoded(self, tmp_path: Path) -> None:
        stream = beginning()
        stream.transaction(1, table(), (build.WRITE, insert(1)[1][:-3]), insert(2))
        scripted = walked(tmp_path, stream)
        assert list(scripted.walk.broken) == ["log"]
        error = scripted.walk.broken["log"]
        assert isinstance(error, DecodeError)
        assert error.position

    def test_what_is_about_no_table_is_an_error_of_the_whole(self, tmp_path: Path) -> None:
        stream = beginning()
        stream.transaction(1, insert(1))  # no table map
        with pytest.raises(DecodeError, match="table 7"):
            go(Scripted(tmp_path, stream))


def test_previous_gtids_complete_what_was_delivered(tmp_path: Path) -> None:
    stream = beginning()
    known = b"\1" + bytes(7) + build.UUID + b"\1" + bytes(7) + b"\1" + bytes(7) + b"\6" + bytes(7)
    stream.add(events.PREVIOUS_GTIDS, known)
    scripted = walked(tmp_path, stream, delivered=f"{build.UUID_TEXT}:1-3:5")
    assert str(scripted.delivered) == f"{build.UUID_TEXT}:1-5"


def test_transactions_without_gtid_are_named_after_their_place(tmp_path: Path) -> None:
    stream = beginning()
    begin = stream.offset
    stream.add(build.ANONYMOUS, build.gtid(bytes(16), 0))
    stream.add(build.QUERY, build.query("BEGIN"))
    stream.add(build.XID, bytes(8))
    assert given(walked(tmp_path, stream).walk.anchor).id == f"server/3:{begin}"


@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_one_packet_at_a_time(tmp_path: Path, piece: int) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    scripted = Scripted(tmp_path, stream, piece=piece)
    scripted.encoder.suppress = True
    places: list[int] = []
    for _ in range(1 << 16):
        scripted.walk.one_packet()
        if not places or places[-1] != scripted.walk.place.offset:
            places.append(scripted.walk.place.offset)
        if scripted.walk.place.offset == stream.offset:
            break
    sizes = [len(event) for event in stream.events[1:]]
    assert places == [4 + sum(sizes[:n]) for n in range(len(sizes) + 1)]


# --- prepared xa ---


A, B = Xid(b"a"), Xid(b"b")


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    made = Prepared(tmp_path / "state", budget=1000, memory=30)
    yield made
    made.close()


def prepare(prepared: Prepared, xid: Xid, offset: int, *events: bytes) -> None:
    prepared.begin(LogPosition(1, 7, offset))
    for event in events:
        prepared.add(event)
    prepared.keep(xid)


def released(prepared: Prepared, xid: Xid) -> list[bytes]:
    events = given(prepared.release(xid))
    return [event if isinstance(event, bytes) else event.header + event.body.take(event.body.left) for event in events]


def test_what_is_prepared_comes_back_once_in_order(prepared: Prepared) -> None:
    prepare(prepared, A, 100, b"one", b"two")
    assert prepared.oldest == LogPosition(1, 7, 100)
    assert released(prepared, A) == [b"one", b"two"]
    assert prepared.release(A) is None
    assert prepared.oldest is None


def test_beyond_the_memory_it_goes_through_a_file_that_has_no_name(prepared: Prepared, tmp_path: Path) -> None:
    events = [b"%d" % n * (n % 20 + 1) for n in range(20)]
    prepare(prepared, A, 100, *events[:10])
    prepare(prepared, B, 200, *events[10:])
    assert list((tmp_path / "state").iterdir()) == []
    assert prepared.oldest == LogPosition(1, 7, 100)
    assert released(prepared, A) == events[:10]
    assert prepared.oldest == LogPosition(1, 7, 200)
    assert released(prepared, B) == events[10:]


def test_the_room_of_what_is_resolved_is_used_again(prepared: Prepared) -> None:
    for n in range(10):
        prepare(prepared, A, n, b"x" * 200, b"y" * 200)
        if n % 2:
            prepared.drop(A)
        else:
            assert released(prepared, A) == [b"x" * 200, b"y" * 200]


def test_over_the_budget_it_says_what_to_do(prepared: Prepared) -> None:
    with pytest.raises(UnsupportedLog, match="1000 bytes") as error:
        prepare(prepared, A, 1, *[b"x" * 300] * 4)
    assert "XA RECOVER" in (error.value.hint or "")


def test_a_group_that_does_not_end_is_forgotten(prepared: Prepared) -> None:
    prepared.begin(LogPosition(1, 7, 5))
    prepared.add(b"x" * 20)
    assert prepared.collecting
    prepared.drop_open()
    assert prepared.oldest is None
    prepare(prepared, A, 6, b"y" * 30)  # all of the memory is free again
    assert released(prepared, A) == [b"y" * 30]


def test_one_phase_gives_back_what_was_collected(prepared: Prepared) -> None:
    prepared.begin(LogPosition(1, 7, 5))
    prepared.add(b"one")
    assert list(prepared.release_open()) == [b"one"]
    assert not prepared.collecting


def test_a_large_event_goes_to_the_file_in_parts_and_comes_back_so(tmp_path: Path) -> None:
    made = Prepared(tmp_path / "state", budget=1000, memory=30, held=60)
    large = with_length(bytes(19), 100) + bytes(range(100))
    made.begin(LogPosition(1, 7, 4))
    made.add(b"one")
    made.add_large(LargeEvent(large[:19], Body(io.BytesIO(large[19:]).read, 100)))
    made.add(b"x" * 50)
    made.keep(A)
    events = given(made.release(A))
    assert next(events) == b"one"
    event = next(events)
    assert isinstance(event, LargeEvent)
    assert event.header + event.body.take(1000) == large
    assert list(events) == [b"x" * 50]
    made.begin(LogPosition(1, 7, 4))
    with pytest.raises(UnsupportedLog, match="more than the budget"):
        made.add_large(LargeEvent(large[:19], Body(io.BytesIO(bytes(990)).read, 990)))
    made.close()
