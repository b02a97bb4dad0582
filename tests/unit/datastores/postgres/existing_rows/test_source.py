"""The tables beside a server that is played: what it refuses, what ends in the middle, and which snapshots it gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.postgres.decode.encodings import UTF8
from datastores.postgres.existing_rows import snapshot as snapshot_module
from datastores.postgres.existing_rows import source as source_module
from datastores.postgres.existing_rows.snapshot import Begun, Snapshots
from datastores.postgres.existing_rows.source import PostgresTables
from datastores.postgres.history.delivered_transactions import DeliveredTransactions
from datastores.postgres.history.incarnations import History, Incarnations
from datastores.postgres.log import flushing
from datastores.postgres.server.connection import Connection, ServerError
from tests.support.postgres_catalogue import answer, column, part
from wormhole.host.state_file import FolderState
from wormhole.model.errors import ChunkUnavailable, SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding, shard_of_hash
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.wire.rows import encode_key
from wormhole.wire.v1 import update_pb2

# --- source: the tables beside a server that is played: what it refuses, and what ends in the middle ---


_PLACE = LogPosition(1, 0, 0x100)
_MARKER = Datamarker(_PLACE, "1:0/100", _PLACE)
_LINES = [b"1\ta\tf\n", b"2\tb\tf\n", b"3\tc\tf\n"]
_BROKEN = SourceUnavailable("the connection ended")


def refused(sqlstate: str) -> ServerError:
    return ServerError("the server says no", sqlstate=sqlstate, hint="ask again")


class Server:
    """``described``: the table, ``None``: none. ``copies``: what each COPY sends, then an error if it is one; then
    nothing. ``refuses``: errors of the statements that hold a word.
    """

    version = 150000
    encoding = UTF8

    def __init__(self) -> None:
        self.is_open = True
        self.described: dict[str, Any] | None = answer()
        self.copies: list[list[list[bytes] | WormholeError]] = []
        self.refuses: dict[str, WormholeError] = {}
        self.recovery = "f"
        self.opened = 0
        self.said: list[str] = []
        self.meanwhile: Callable[[str], None] = lambda _: None

    def connect(self, _address: object, **_: object) -> Server:
        self.opened += 1
        self.is_open = True
        return self

    def close(self) -> None:
        self.is_open = False

    def _say(self, statement: str) -> None:
        self.said.append(statement)
        self.meanwhile(statement)
        for word, error in self.refuses.items():
            if word in statement:
                raise error

    def query(self, statement: str, **_: object) -> list[tuple[str | None, ...]]:
        self._say(statement)
        text = None if self.described is None else json.dumps(self.described)
        if "pg_is_in_recovery" in statement:
            return [(self.recovery,)]
        if "pg_control_system" in statement:
            return [("7", "00000001", "8192", "16777216", "w")]
        if "pg_current_snapshot" in statement:
            return [("5:9:", "0/200", text)]
        if "pg_current_wal" in statement:
            return [("0/200",)]
        if "pg_get_publication_tables" in statement:
            return [("shop", "t")]
        if "json_build_object" in statement:
            return [(text,)] if text else []
        return [("f",)] if statement.startswith("SELECT (") else []

    def copy_rows(self, statement: str, **_: object) -> Iterator[list[bytes]]:
        self._say(statement)
        for one in self.copies.pop(0) if self.copies else []:
            if isinstance(one, WormholeError):
                self.is_open = isinstance(one, ServerError)
                raise one
            yield one


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    played = Server()
    monkeypatch.setattr(source_module, "connect", played.connect)
    return played


@pytest.fixture
def tables(server: Server, tmp_path: Path) -> PostgresTables:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("a hole")
    options = SourceOptions("log", tmp_path, Sharding("log"), 1 << 20, 0, Login(password))
    return PostgresTables("postgres://w@127.0.0.1/shop", options)


def read(tables: PostgresTables, **limits: Any) -> Chunk:
    return tables.chunk("shop.t", None, None, ChunkLimits(**limits), _MARKER)


def test_rows_come_until_nothing_is_left(server: Server, tables: PostgresTables) -> None:
    server.copies = [[_LINES[:2], _LINES[2:]]]
    chunk = read(tables)
    assert (len(chunk.rows), chunk.last, chunk.done, chunk.high) == (3, encode_key((3,)), True, "1/0/512")
    words = [statement.partition(" ")[0] for statement in server.said]
    assert words[words.index("BEGIN") :] == ["BEGIN", "SELECT", "SET", "COPY", "COMMIT", "SELECT"]
    assert server.opened == 1


def test_rows_beyond_the_limits_are_left_to_the_next_chunk(server: Server, tables: PostgresTables) -> None:
    server.copies = [[_LINES]]
    chunk = read(tables, bytes=1)
    assert (list(chunk.rows), chunk.done) == ([encode_key((1,))], False)
    assert server.is_open, "few rows are passed over"
    server.copies = [[_LINES[:2]]]
    chunk = read(tables, rows=2)
    assert (len(chunk.rows), chunk.done) == (2, False)
    assert " LIMIT 2)" in server.said[-3]
    server.copies = [[_LINES[:1], [b"2\t" + b"x" * 70_000 + b"\tf\n"], _LINES[2:]]]
    assert len(read(tables, bytes=1).rows) == 1
    server.copies = [[_LINES[:1]]]
    assert len(read(tables).rows) == 1
    assert server.opened == 2, "what is on its way is not received"


def test_a_statement_that_the_server_ends(server: Server, tables: PostgresTables) -> None:
    server.copies = [[_LINES[:2], refused("57014")]]
    chunk = read(tables)
    assert (len(chunk.rows), chunk.done) == (2, False)
    assert server.said[-2] == "ROLLBACK"
    for seconds in (1, 2, 4):
        server.copies = [[refused("57014")]]
        with pytest.raises(ChunkUnavailable, match=f"found no row within {seconds} s"):
            read(tables)
    server.copies = [[_LINES]]
    assert read(tables).done
    server.copies = [[refused("57014")]]
    with pytest.raises(ChunkUnavailable, match="ended the query for 1 rows"):
        tables.rows("shop.t", [encode_key((1,))], _MARKER)


def test_what_breaks_while_rows_come_is_asked_for_in_smaller_parts(server: Server, tables: PostgresTables) -> None:
    server.copies = [[_LINES[:1], _BROKEN]]
    with pytest.raises(ChunkUnavailable, match="the connection ended"):
        read(tables)
    server.copies = [[_LINES]]
    assert read(tables).done
    assert server.opened == 2


def test_what_is_no_value_of_its_column(server: Server, tables: PostgresTables) -> None:
    server.copies = [[[b"one\ta\tf\n"]]]
    with pytest.raises(UnreadableTable, match=r"shop\.t, column n"):
        read(tables)
    assert not server.is_open, "no transaction stays open"


@pytest.mark.parametrize(
    ("sqlstate", "kind", "text"),
    [
        ("42P01", UnreadableTable, "there is no table shop.t any more"),
        ("3F000", UnreadableTable, "there is no table shop.t any more"),
        ("42501", UnreadableTable, 'GRANT SELECT ON "shop"."t" TO "w"'),
        ("22P02", UnreadableTable, "does not fit the table's present key"),
        ("42883", UnreadableTable, "a type without an order"),
        ("55P03", SourceUnavailable, "is locked by an ALTER"),
        ("42703", SourceUnavailable, "is altered again and again"),
        ("53200", ChunkUnavailable, "the server says no"),
    ],
)
def test_what_the_server_refuses(
    server: Server, tables: PostgresTables, sqlstate: str, kind: type[WormholeError], text: str
) -> None:
    server.refuses["LOCK TABLE"] = refused(sqlstate)
    with pytest.raises(kind) as raised:
        read(tables)
    assert type(raised.value) is kind
    assert text in str(raised.value)
    assert not server.is_open
    server.refuses.clear()
    server.copies = [[_LINES]]
    assert len(read(tables).rows) == 3


def test_a_table_that_goes_or_changes_before_its_snapshot(server: Server, tables: PostgresTables) -> None:
    def change(described: dict[str, Any] | None) -> None:
        def at_the_lock(statement: str) -> None:
            if "LOCK TABLE" in statement:
                server.described = described

        server.meanwhile = at_the_lock

    change(answer(kind="p"))
    server.copies = [[_LINES]]
    assert len(read(tables).rows) == 3
    assert 'LOCK TABLE "shop"."t" ' in server.said[-6], "its partitions are locked too"
    change(None)
    with pytest.raises(UnreadableTable, match=r"no table shop\.t any more"):
        read(tables)
    with pytest.raises(UnreadableTable, match=r"no table shop\.u any more"):
        tables.skip("shop.u", None, 1)


def test_another_key_than_the_one_that_was_described(server: Server, tables: PostgresTables) -> None:
    (table,) = tables.tables(lambda _: True)
    assert (table.name, table.rows, table.portable) == ("shop.t", 7, True)
    server.described = answer(columns=[column(1, "n", declared="bigint"), column(3, "v")])
    with pytest.raises(SourceUnavailable, match="another one than when its backfill began"):
        read(tables)
    tables.tables(lambda _: True)
    assert read(tables).done


def test_keys_that_are_none(server: Server, tables: PostgresTables) -> None:
    server.described = answer(key=[part(1), part(3)])
    assert not tables.can_ask("shop.t", encode_key((1,)))
    assert tables.can_ask("shop.t", encode_key((1, "a")))
    server.refuses["::text"] = refused("22P02")
    assert not tables.can_ask("shop.t", encode_key((1, "a")))
    server.refuses["::text"] = refused("57014")
    with pytest.raises(ServerError):
        tables.can_ask("shop.t", encode_key((1, "a")))
    with pytest.raises(UnreadableTable, match="1 values for 2 columns"):
        tables.rows("shop.t", [encode_key((1,))], _MARKER)


def test_a_row_under_another_key_is_another_row_or_its_other_spelling(server: Server, tables: PostgresTables) -> None:
    server.copies = [[_LINES[:1]]]
    chunk = tables.rows("shop.t", [encode_key((2,))], _MARKER)
    assert (chunk.rows, list(chunk.unclear)) == ({}, [])


def test_counting_less_far(server: Server, tables: PostgresTables) -> None:
    server.copies = [[refused("57014")], [refused("57014")], [[b"3\n"]]]
    assert tables.skip("shop.t", encode_key((1,)), 20) == encode_key((3,))
    assert [statement for statement in server.said if "OFFSET" in statement][-1].endswith("OFFSET 0 LIMIT 1) TO STDOUT")
    server.copies = [[refused("57014")]]
    with pytest.raises(ChunkUnavailable):
        tables.skip("shop.t", None, 1)
    server.copies = [[refused("42703")]]
    with pytest.raises(SourceUnavailable, match="is being altered"):
        tables.skip("shop.t", None, 1)


def test_a_standby_and_another_server(server: Server, tables: PostgresTables, tmp_path: Path) -> None:
    server.recovery = "t"
    with pytest.raises(SourceUnavailable, match="is a standby") as raised:
        tables.tables(lambda _: True)
    assert "name the primary" in str(raised.value.hint)
    server.recovery = "f"
    (tmp_path / "postgres").mkdir()
    Incarnations(FolderState(tmp_path / "postgres"))._begin(History(1, "8", 1))
    with pytest.raises(
        SourceUnavailable, match=r" timeline 1 of system 7, .* timeline 1 of system .*\[source-unavailable\]"
    ):
        read(tables)


def test_an_interrupted_call(server: Server, tables: PostgresTables) -> None:
    server.meanwhile = lambda statement: tables.interrupt() if "LOCK" in statement else None
    server.refuses["LOCK"] = _BROKEN
    with pytest.raises(SourceUnavailable, match="was interrupted"):
        read(tables)
    server.meanwhile = lambda _: None
    server.refuses.clear()
    assert read(tables).done
    tables.interrupt()
    with pytest.raises(SourceUnavailable, match="was interrupted"):
        tables._interruption.wait(60)


def test_many_keys_are_asked_for_some_at_a_time(server: Server, tables: PostgresTables) -> None:
    assert tables.rows("shop.t", [encode_key((n,)) for n in range(500)], _MARKER).done
    asked = [statement.count(" OR ") + 1 for statement in server.said if statement.startswith("COPY")]
    assert asked == [200, 200, 100]


def test_only_a_later_place_of_the_same_incarnation_reaches_a_chunk(tables: PostgresTables) -> None:
    for place, expected in (((1, 0, 256), True), ((1, 0, 255), False), ((1, 1, 0), True), ((2, 9, 9), False)):
        order = LogPosition(*place)
        assert tables.reached(str(_PLACE), Datamarker(order, "1", order)) is expected


@pytest.mark.parametrize("key", [(5,), (b"bytes",), ("text",), (b"a", -5)])
def test_the_shard_of_a_key(tmp_path: Path, key: tuple[Any, ...]) -> None:
    """`tests/unit/datastores/common/encode/test_updates.py` has the same rule for the log's rows."""
    values = update_pb2.RowKey.FromString(encode_key(key)).values
    hashed = key[0] if key == (b"bytes",) else b"".join(value.SerializeToString() for value in values)
    for sharding, expected in (
        (Sharding("hash", 7), shard_of_hash("log", hashed, 7)),
        (Sharding("table"), "log.shop.t"),
    ):
        tables = PostgresTables("postgres://w@127.0.0.1/shop", SourceOptions("log", tmp_path, sharding, 1 << 20, 0))
        assert tables.shard_of("shop.t", encode_key(key)) == expected


# --- snapshot: when a snapshot may be used, and where it lies in the log ---


_PAGE, _FILE = 8192, 1 << 24


class SnapshotServer:
    """``snapshots``: the answers to come, the last one again and again. ``said``: what was asked, by its first word."""

    def __init__(self, *snapshots: str, end: str = "0/200", flushed: tuple[str, ...] = ("0/200",)) -> None:
        self.snapshots, self.end, self.flushed = list(snapshots), end, list(flushed)
        self.said: list[str] = []

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        self.said.append(statement)
        if "pg_current_snapshot" in statement:
            return [(self._next(self.snapshots), self.end, "described")]
        if "flush" in statement:
            return [(self._next(self.flushed),)]
        if "insert_lsn" in statement:
            return [(self.end,)]
        return []

    @staticmethod
    def _next(answers: list[str]) -> str:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def begin(self, *delivered: int, waits: list[float] | None = None) -> Begun:
        """Begin at a log whose ``delivered`` transactions came before the marker, and 99 behind it."""
        known = DeliveredTransactions()
        known.begin(LogPosition(1, 0, 1))
        known.note(LogPosition(1, 0, 0x150), [*delivered, 99], [*(0x100 - n for n in range(len(delivered))), 0x150])
        snapshots = Snapshots(known, _PAGE, _FILE)
        wait = [] if waits is None else waits
        return snapshots.begin(self.connection, "ONLY t", "SELECT 1", _MARKER, wait.append)

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)


def test_the_place_is_the_end_of_the_log_behind_the_snapshot() -> None:
    server = SnapshotServer("5:9:99")
    assert server.begin(7, 8) == Begun(LogPosition(1, 0, 0x200), "described")
    lock = next(at for at, statement in enumerate(server.said) if "LOCK TABLE ONLY t IN ACCESS SHARE MODE" in statement)
    assert "pg_current_snapshot" in server.said[lock + 1]
    assert server.said[lock].startswith("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; ")


def test_where_the_next_record_begins_behind_a_pages_header() -> None:
    assert SnapshotServer("5:9:", end="0/2018").begin(7).high == LogPosition(1, 0, 0x2000)


def test_it_waits_outside_a_transaction_until_what_was_delivered_is_shown() -> None:
    server, waits = SnapshotServer("5:8:7", "5:8:", "5:9:"), list[float]()
    assert server.begin(7, 8, waits=waits).described == "described"
    words = [statement.partition(" ")[0] for statement in server.said]
    assert words == ["SELECT", "SELECT", *("BEGIN", "SELECT", "ROLLBACK") * 2, "BEGIN", "SELECT"]
    assert len(waits) == 2


def test_what_is_not_shown_in_time_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "_PATIENCE_S", 0.0)
    server = SnapshotServer("5:8:")
    with pytest.raises(SourceUnavailable, match="8, 9, 10, 11, 12 and 1 others it does not show yet") as raised:
        server.begin(*range(7, 14))
    assert "synchronous_standby_names" in str(raised.value.hint)
    assert server.said[-1] == "ROLLBACK"


def test_a_log_that_ends_before_the_place_is_another_one() -> None:
    server = SnapshotServer("5:9:", end="0/FF")
    with pytest.raises(SourceUnavailable, match="its log ends before that"):
        server.begin()
    assert len(server.said) == 1, "nothing was begun, and nothing is learnt of what is unfinished"


@pytest.mark.parametrize("flushed", [("0/200",), ("0/100", "0/1FF", "0/201")])
def test_what_is_written_soon_is_waited_for(flushed: tuple[str, ...]) -> None:
    server, waits = SnapshotServer("5:9:", flushed=flushed), list[float]()
    Snapshots(DeliveredTransactions(), _PAGE, _FILE).await_written(
        server.connection, LogPosition(1, 0, 0x200), waits.append
    )
    assert len(waits) == len(server.said) - 1 == len(flushed) - 1


def test_what_is_not_written_soon_is_written_by_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "_SOON_S", 0.0)
    server = SnapshotServer("5:9:", flushed=("0/1FF",))
    Snapshots(DeliveredTransactions(), _PAGE, _FILE).await_written(
        server.connection, LogPosition(1, 0, 0x200), lambda _: None
    )
    assert server.said[1:] == ["SELECT pg_catalog.pg_current_xact_id()"]
