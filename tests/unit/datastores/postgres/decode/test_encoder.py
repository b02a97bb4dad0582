"""Log data to updates: every message, transactions whole and in pieces, and every break, in both forms."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from datastores.postgres.decode import tables as tables_module
from datastores.postgres.decode.catalogue_keys import CatalogueColumn, CatalogueKey, KeyPlaces, LoggedKeys, places_of
from datastores.postgres.decode.messages import FULL, Relation, RelationColumn, begins_behind
from datastores.postgres.decode.tables import Tables
from tests.support import postgres_messages as build
from tests.support.hot import hot_module
from tests.support.postgres_changes import Change, changes_of, decoded, keyed
from tests.support.postgres_messages import EPOCH_US, INT4, INT8, TEXT, UNCHANGED
from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.sharding import Sharding
from wormhole.model.values import UNAVAILABLE, Value

# --- encoder ---


encoder = hot_module("datastores.postgres.decode.encoder")

COLUMNS = [("id", INT4), ("name", TEXT)]
TABLE = build.relation(7, "shop.orders", COLUMNS)
LOG = Sharding("log")


def made(module: ModuleType, *messages: bytes, sharding: Sharding = LOG, most: int = 1 << 20, **options: Any) -> Any:
    found = module.Encoder(Tables("db", sharding, **options), most, sharding.count)
    for message in messages:
        found.add(message)
    return found


def changes(found: Any) -> list[Change]:
    return changes_of(found.take(), found.tables.schemas)


def transaction(*messages: bytes, lsn: int = 100, end: int = 140, at_us: int = 5) -> list[bytes]:
    return [build.begin(lsn, at_us), *messages, build.commit(lsn, end, at_us)]


def test_a_transaction_with_every_kind_of_change(encoder: ModuleType) -> None:
    found = made(encoder)
    messages = transaction(
        TABLE,
        build.insert(7, ["1", "a"]),
        build.update(7, ["1", "b"]),
        build.update(7, ["2", "b"], ["1", None], b"K"),
        build.delete(7, ["2", None]),
        build.truncate(7),
    )
    assert [found.add(message) for message in messages] == [encoder.OK] * 7 + [encoder.COMMIT]
    piece = found.take()
    assert changes_of(piece, found.tables.schemas) == [
        Change("insert", "shop.orders", (1,), {"id": 1, "name": "a"}),
        Change("update", "shop.orders", (1,), {"id": 1, "name": "b"}),
        Change("update", "shop.orders", (2,), {"id": 2, "name": "b"}, {"id": 1, "name": UNAVAILABLE}, (1,)),
        Change("delete", "shop.orders", (2,), None, {"id": 2, "name": UNAVAILABLE}),
        Change("truncate", "shop.orders", ()),
    ]
    assert (list(piece.tx_number), list(piece.tx_offset), list(piece.tx_end)) == ([100], [140], [5])
    assert list(piece.tx_committed_at_us) == [EPOCH_US + 5]
    checksum = zlib.crc32(messages[-1][25:], zlib.crc32(messages[0][25:]))
    assert (found.last_commit, found.last_end, found.last_checksum) == (100, 140, checksum)
    assert (found.last_committed_at_us, found.place, found.in_transaction) == (EPOCH_US + 5, 140, False)


def test_what_a_transaction_holds_depends_on_no_earlier_piece(encoder: ModuleType) -> None:
    """A large transaction in pieces, behind one that ended."""
    found = made(encoder, *transaction(TABLE, build.insert(7, ["1", "a"])))
    for message in (build.begin(200), build.insert(7, ["2", "b"]), build.insert(7, ["3", "c"])):
        found.add(message)
    whole = found.take(whole=True)
    assert (list(whole.tx_number), list(whole.tx_end), len(whole.ends)) == ([100], [1], 1)
    part = found.take()
    assert (list(part.tx_number), list(part.tx_offset), list(part.tx_end), len(part.ends)) == ([200], [140], [], 2)
    assert found.first_index == 0
    found.add(build.insert(7, ["4", "d"]))
    found.add(build.commit(200, 260))
    rest = found.take()
    assert (list(rest.tx_number), list(rest.tx_offset), list(rest.tx_end)) == ([200], [260], [1])
    assert found.first_index == 2
    assert [change.key for change in changes_of(rest, found.tables.schemas)] == [(4,)]


def test_transactions_without_updates_move_the_place_only(encoder: ModuleType) -> None:
    found = made(encoder, *transaction(), build.origin("elsewhere"))
    assert not found.take().tx_number
    assert (found.place, found.last_commit) == (140, 100)


def test_a_clock_before_2000_gives_no_time(encoder: ModuleType) -> None:
    assert made(encoder, *transaction(at_us=-1)).last_committed_at_us == 0


def test_suppressed_transactions_are_walked(encoder: ModuleType) -> None:
    found = made(encoder)
    found.suppress = True
    for message in transaction(TABLE, build.insert(7, ["x", "a"]), build.truncate(7)):
        found.add(message)
    assert (found.updates, found.last_commit, found.last_end) == (0, 100, 140)
    found.suppress = False
    for message in transaction(build.insert(7, ["1", "a"]), lsn=200):
        found.add(message)
    assert [change.key for change in changes(found)] == [(1,)]


def test_many_messages_at_once(encoder: ModuleType) -> None:
    found = made(encoder)
    messages = [*transaction(TABLE, *(build.insert(7, [str(n), "a" * 50]) for n in range(9))), b"k" + bytes(17)]
    assert found.add_all(messages, 0, 1) == 3
    assert found.add_all(messages, 3, 1 << 20) == len(messages) - 1
    assert found.log_bytes == sum(map(len, messages[:-1]))
    assert found.add_all(messages, len(messages) - 1, 1 << 20) == len(messages) - 1
    assert [change.key for change in changes(found)] == [(n,) for n in range(9)]


def test_a_table_changes_inside_a_transaction(encoder: ModuleType) -> None:
    found = made(
        encoder,
        *transaction(
            TABLE,
            build.insert(7, ["1", "a"]),
            build.relation(7, "shop.orders", [("id", INT4), ("name", TEXT), ("n", INT4)]),
            build.insert(7, ["2", "b", "-5"]),
            build.relation(7, "shop.orders", [("id", TEXT)]),
            build.insert(7, ["3"]),
        ),
    )
    assert [(change.key, change.after) for change in changes(found)] == [
        ((1,), {"id": 1, "name": "a"}),
        ((2,), {"id": 2, "name": "b", "n": -5}),
        (("3",), {"id": "3"}),
    ]


def test_unchanged_toast_is_unavailable_unless_the_old_row_has_it(encoder: ModuleType) -> None:
    full = build.relation(8, "shop.full", COLUMNS, (0, 1), "f")
    found = made(
        encoder,
        *transaction(
            TABLE,
            full,
            build.update(7, ["1", UNCHANGED]),
            build.update(8, ["1", UNCHANGED], ["1", "big"]),
            build.update(7, [UNCHANGED, "b"], ["1", None], b"K"),
        ),
        find_key=keyed("id"),
    )
    assert [(change.key, change.after, change.old_key) for change in changes(found)] == [
        ((1,), {"id": 1, "name": UNAVAILABLE}, ()),
        ((1,), {"id": 1, "name": "big"}, ()),
        ((1,), {"id": 1, "name": "b"}, ()),
    ]


def test_logical_messages_are_inserts_of_a_table_of_their_own(encoder: ModuleType) -> None:
    found = made(encoder, *transaction(build.message("outbox", b"\0{}", 90)))
    after: dict[str, Value] = {"prefix": "outbox", "content": b"\0{}", "transactional": True}
    assert changes(found) == [Change("insert", "@message", (), after)]


def test_a_message_outside_of_transactions_is_one_of_its_own_and_proves_nothing(encoder: ModuleType) -> None:
    first = build.message("first", b"{}", 90, transactional=False, sent_us=9)
    later = build.message("later", b"{}", 150, transactional=False, sent_us=9)
    found = made(encoder, first, *transaction(), later, later)
    piece = found.take()
    assert [change.after and change.after["prefix"] for change in changes_of(piece, found.tables.schemas)] == [
        "first",
        "later",
    ]
    assert (list(piece.tx_number), list(piece.tx_offset), list(piece.tx_end)) == ([89, 149], [90, 150], [1, 2])
    assert list(piece.tx_committed_at_us) == [EPOCH_US + 9, EPOCH_US + 5]
    assert (found.place, found.last_end, found.in_transaction) == (150, 140, False)


def test_what_is_too_large_goes_without_its_values(encoder: ModuleType) -> None:
    messages = transaction(
        TABLE,
        build.insert(7, ["1", "x" * 200]),
        build.update(7, ["2", "y"], ["1", "x" * 200], b"O"),
        build.message("p", b"x" * 200, 90),
        build.insert(7, ["3", "y"]),
    )
    found = made(encoder, *messages, most=100)
    assert [(change.key, change.old_key, change.too_large) for change in changes(found)] == [
        ((1,), (), True),
        ((2,), (1,), True),
        ((), (), True),
        ((3,), (), False),
    ]
    assert found.too_large == 3


def test_skipped_tables_are_passed_over(encoder: ModuleType) -> None:
    messages = transaction(TABLE, build.insert(7, ["no number", "a"]), build.truncate(7), build.message("p", b"", 90))
    for skipped in (frozenset({"shop.orders", "@message"}), frozenset({"shop.*", "@message"})):
        assert decoded(messages, encoder, skipped=skipped) == []


def test_a_row_that_cannot_be_read_breaks_its_shards_only(encoder: ModuleType) -> None:
    other = build.relation(8, "shop.full", COLUMNS, (0,))
    found = made(
        encoder,
        *transaction(TABLE, other, build.insert(7, ["one", "a"]), build.insert(8, ["1", "a"])),
        sharding=Sharding("table"),
    )
    assert [change.table for change in changes(found)] == ["shop.full"]
    assert found.tables.take_broken(before=100) == {}
    broken = found.tables.take_broken()
    assert list(broken) == ["db.shop.orders"]
    assert broken["db.shop.orders"].message == "shop.orders, column id: b'one' of 3 bytes is no value of its type"
    assert broken["db.shop.orders"].tables == ("shop.orders",)
    assert found.tables.take_broken() == {}


def test_a_key_that_is_not_known_breaks_the_table(encoder: ModuleType) -> None:
    full = build.relation(8, "shop.full", COLUMNS, (0, 1), "f")
    rows = transaction(full, build.insert(8, ["1", "a"]))
    with pytest.raises(DecodeError, match="the catalogue does not have the table any more") as error:
        decoded(rows, encoder, find_key=lambda *_: None)
    assert (error.value.tables, 'ALTER TABLE "shop"."full" REPLICA IDENTITY' in str(error.value.hint)) == (
        ("shop.full",),
        True,
    )
    elsewhere = CatalogueKey((CatalogueColumn(1, "number", INT4, in_key=True),), 1)
    with pytest.raises(DecodeError, match=r"primary key \(number\) has a column number which cannot be distinguished"):
        decoded(rows, encoder, find_key=lambda *_: elsewhere)
    assert [change.key for change in decoded(rows, encoder, find_key=keyed("id"))] == [(1,)]
    assert [change.key for change in decoded(rows, encoder, find_key=keyed())] == [()]
    assert [change.key for change in decoded(rows, encoder)] == [()]
    hidden = transaction(build.relation(8, "shop.full", COLUMNS, (), "n"), build.insert(8, ["1", "a"]))
    assert [change.key for change in decoded(hidden, encoder, find_key=lambda *_: None)] == [()]


def test_a_key_is_that_of_the_transaction_which_is_decoded(encoder: ModuleType) -> None:
    """The catalogue is asked with its place, and the key that was found before is remembered."""
    asked: list[tuple[int, int]] = []
    columns = (CatalogueColumn(1, "id", INT4, in_key=True), CatalogueColumn(2, "name", TEXT))
    answers = [CatalogueKey(columns, 5), CatalogueKey(columns, 5, None), CatalogueKey(columns, 6, None)]

    def find(relation: Relation, commit: int) -> CatalogueKey:
        asked.append((relation.id, commit))
        return answers.pop(0)

    full = build.relation(8, "shop.full", COLUMNS, (0, 1), "f")
    found = made(encoder, find_key=find)
    for n in (1, 2, 3):
        for message in transaction(full, build.insert(8, [str(n), "a"]), lsn=100 * n, end=100 * n + 40):
            found.add(message)
    assert asked == [(8, 100), (8, 200), (8, 300)]
    assert [change.key for change in changes(found)] == [(1,), (2,)]
    (error,) = found.tables.take_broken().values()
    assert "the primary key that the catalogue has (id) may be newer than that" in error.message


def test_a_table_that_is_skipped_is_not_looked_up(encoder: ModuleType) -> None:
    full = build.relation(8, "shop.full", COLUMNS, (0, 1), "f")

    def find(*_: object) -> CatalogueKey:
        raise AssertionError("it was")

    assert decoded(transaction(full, build.insert(8, ["1", "a"])), encoder, skipped=frozenset({"shop.full"}),
                   find_key=find) == []  # fmt: skip


def test_a_key_of_which_the_server_leaves_out_a_generated_column_breaks_the_table(encoder: ModuleType) -> None:
    rows = transaction(build.relation(8, "shop.full", COLUMNS, (0,), "d"), build.insert(8, ["1", "a"]))
    with pytest.raises(DecodeError, match=r" shop\.full .* total.*\[log-undecodable\]"):
        decoded(rows, encoder, find_logged=lambda: (0, LoggedKeys({8: ("total",)})))
    assert [one.key for one in decoded(rows, encoder, find_logged=lambda: (0, LoggedKeys({9: ("total",)})))] == [(1,)]
    assert [one.key for one in decoded(rows, encoder, find_logged=lambda: (0, LoggedKeys({8: ("id",)})))] == [(1,)]


def test_a_logged_key_that_rows_may_share_is_none_and_a_change_by_it_breaks_the_table(encoder: ModuleType) -> None:
    """Inserts need no key. With REPLICA IDENTITY FULL the rows are whole, and the catalogue's answer counts."""

    def find() -> tuple[int, LoggedKeys]:
        return 0, LoggedKeys(repeated=frozenset({8}))

    keyed = build.relation(8, "shop.t", COLUMNS, (0,), "d")
    inserted = transaction(keyed, build.insert(8, ["1", "a"]), build.insert(8, ["1", "b"]))
    assert [one.key for one in decoded(inserted, encoder, find_logged=find)] == [(), ()]
    for change in (build.update(8, ["1", "a"]), build.delete(8, ["1", None])):
        with pytest.raises(DecodeError, match=r"the key of shop\.t does not identify a row") as raised:
            decoded(transaction(keyed, change), encoder, find_logged=find)
        assert "REPLICA IDENTITY FULL" in (raised.value.hint or "")
        assert raised.value.tables == ("shop.t",)
    whole = build.relation(8, "shop.t", COLUMNS, (0, 1), "f")
    (one,) = decoded(
        transaction(whole, build.update(8, ["1", "b"], old=["1", "a"])), encoder, find_logged=find,
        find_key=lambda *_: CatalogueKey(()),
    )  # fmt: skip
    assert (one.key, one.before, one.after) == ((), {"id": 1, "name": "a"}, {"id": 1, "name": "b"})


def test_generated_columns_are_as_of_a_place_and_are_looked_up_again_behind_it(encoder: ModuleType) -> None:
    """A key may get one between the look and the Relation message."""
    looks = [(150, LoggedKeys()), (250, LoggedKeys({9: ("total",)}))]
    found = made(encoder, sharding=Sharding("table"), find_logged=lambda: looks.pop(0))
    for number, lsn in ((8, 100), (9, 149), (8, 150), (9, 249)):
        relation = build.relation(number, f"shop.t{number}", COLUMNS, (0,), "d")
        for message in transaction(relation, build.insert(number, ["1", "a"]), lsn=lsn, end=lsn + 1):
            found.add(message)
    assert looks == []
    assert [change.table for change in changes(found)] == ["shop.t8", "shop.t9", "shop.t8"]
    assert list(found.tables.take_broken()) == ["db.shop.t9"]


def test_what_is_learnt_of_tables_and_types_is_bounded(encoder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same message again takes nothing: servers repeat them."""
    monkeypatch.setattr(tables_module, "_MOST_BYTES", 20_000)
    made_of: tuple[Callable[[int], bytes], ...] = (
        lambda n: build.relation(n, "shop.t", [(f"c{n}", INT4)]),
        lambda n: build.relation(7, "shop.t", [(f"c{n}", INT4)]),
        lambda n: build.type_name(n, "shop", "a type"),
        lambda n: build.type_name(7, "shop", f"a type {n}"),
    )
    for make in made_of:
        found = made(encoder, build.begin(100))
        for _ in range(1000):
            found.add(make(1))
        with pytest.raises(SourceUnavailable, match="which take more than 0 MiB") as error:
            for n in range(1000):
                found.add(make(n))
        assert "it is opened again" in (error.value.hint or "")


@pytest.mark.parametrize("kind", [b"A", b"r", b"O"])
def test_what_changes_nothing_is_passed_over(encoder: ModuleType, kind: bytes) -> None:
    found = made(encoder, build.log_data(kind + bytes(8)), *transaction(TABLE, build.insert(7, ["1", "a"])))
    found.add(build.log_data(kind + bytes(8)))
    assert [change.key for change in changes(found)] == [(1,)]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([b"k" + bytes(17)], "18 bytes that begin with b'k' are no log data"),
        ([build.log_data(b"?")], r"of kind b'\?' at 1/10: this kind of message is not known"),
        ([build.log_data(b"S")], "Stream Start at 1/10: it is about a transaction that is not committed"),
        ([build.log_data(b"E")], "Stream Stop at 1/10"),
        ([build.log_data(b"c")], "Stream Commit at 1/10"),
        ([build.log_data(b"p")], "Stream Prepare at 1/10"),
        ([build.log_data(b"b")], "Begin Prepare at 1/10"),
        ([build.log_data(b"P")], "the message Prepare at 1/10"),
        ([build.log_data(b"K")], "Commit Prepared at 1/10"),
        ([build.insert(7, ["1"])], "Insert at 1/10: it is outside a transaction"),
        ([build.truncate(7)], "Truncate at 1/10: it is outside a transaction"),
        ([build.message("p", b"", 90)], "Message at 0/5A: it is outside a transaction"),
        ([build.commit(1, 2)], "Commit at 1/10: no transaction has begun"),
        ([build.begin(1), build.begin(2)], "Begin at 1/10: the transaction before it has not ended"),
        ([build.begin(1), build.commit(2, 3)], "Commit at 1/10: it ends another transaction than the one at 0/1"),
        ([build.log_data(b"B123")], "Begin at 1/10: it has 4 bytes, not 21"),
        ([build.begin(1), build.log_data(b"C123")], "Commit at 1/10: it has 4 bytes, not 26"),
        ([build.begin(1), build.insert(7, ["1"])], "Insert at 1/10: no Relation message said what table 7 is"),
        ([build.begin(1), build.log_data(b"I\0")], "Insert at 1/10: its table is cut"),
        ([build.log_data(b"R\0\0\0\7shop")], "Relation at 1/10: Relation message: it is cut in the schema name"),
        ([build.relation(7, "s.t", COLUMNS, identity="x")], "replica identity 'x' is not known"),
        ([TABLE + b"!"], "1 bytes follow its end"),
    ],
)
def test_a_message_that_cannot_be_read_is_one_error_with_its_place(
    encoder: ModuleType, messages: list[bytes], problem: str
) -> None:
    with pytest.raises(DecodeError, match=problem):
        made(encoder, *messages)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (build.insert(7, ["1"]), "its row has 1 columns, its Relation message has 2"),
        (build.insert(7, ["1", "a"])[:-1], "column name: 1 bytes do not fit into the 0 that are left"),
        (build.insert(7, ["1", "a"])[:-3], "column name: its length is cut"),
        (build.insert(7, ["1", "a"]).replace(b"t\0\0\0\1a", b"t\xff\0\0\1a"), "4278190081 bytes do not fit"),
        (build.insert(7, ["1", "a"])[:-6], "column name: it is missing"),
        (build.insert(7, ["1", "a"]) + b"!", "1 bytes follow a row"),
        (build.insert(7, ["1", "a"]).replace(b"t\0\0\0\1a", b"b\0\0\0\1a"), "it is in binary format"),
        (build.insert(7, ["1", "a"]).replace(b"t\0\0\0\1a", b"?\0\0\0\1a"), "its format 0x3f is not known"),
        (build.delete(7, [None, None], b"N"), "a tuple of kind 0x4e is not known"),
        (build.log_data(b"D\0\0\0\7"), "the tuple of a deleted row is missing"),
        (build.log_data(b"I\0\0\0\7"), "the new tuple of a row is missing"),
        (build.delete(7, [UNCHANGED, None]), "the key of a deleted row is not in the log"),
        (build.update(7, [UNCHANGED, "a"]), "the key of a changed row is not in the log"),
        (build.log_data(b"I\0\0\0\7N\0"), "the number of columns is cut"),
    ],
)
def test_a_broken_tuple_breaks_its_table(encoder: ModuleType, message: bytes, problem: str) -> None:
    found = made(encoder, *transaction(TABLE, message, build.insert(7, ["5", "e"])))
    (error,) = found.tables.take_broken().values()
    assert problem in error.message
    assert [change.key for change in changes(found)] == [(5,)]  # nothing is left of what broke


def test_what_begins_behind_a_place() -> None:
    assert begins_behind(build.begin(200), 200)
    assert not begins_behind(build.begin(199), 200)
    assert begins_behind(build.message("p", b"", 201, transactional=False), 200)
    assert not begins_behind(build.message("p", b"", 200, transactional=False), 200)
    assert not begins_behind(build.message("p", b"", 201), 200)
    assert not begins_behind(build.insert(7, ["1"]), 0)
    assert not begins_behind(build.log_data(b"B"), 0)


# --- catalogue keys ---


A, B, C = (CatalogueColumn(n, name, INT4) for n, name in enumerate("abc", 1))
THE_KEY = 77


def _logged(names: str, kind: int = INT4) -> Relation:
    return Relation(9, "shop", "t", FULL, tuple(RelationColumn(name, kind, -1, True) for name in names))


def _key(*columns: CatalogueColumn, key: str, settled: bool | None = True) -> CatalogueKey:
    """``key``: names of the key's columns."""
    found = tuple(replace(column, in_key=column.name in key) for column in columns)
    return CatalogueKey(found, THE_KEY if key else 0, settled)


def _places(logged: str, found: CatalogueKey, before: KeyPlaces | None = None) -> object:
    """Positions, or the problem."""
    answer = places_of(_logged(logged), found, before)
    return answer.problem or answer.places


def test_a_key_that_is_older_is_found_by_its_names() -> None:
    assert _places("abc", _key(A, B, C, key="c")) == (2,)
    assert _places("cab", _key(C, A, B, key="ab")) == (1, 2)
    assert _places("abc", _key(A, B, C, key="")) == ()


@pytest.mark.parametrize("settled", [None, False])
def test_a_key_that_may_be_newer_is_none(settled: bool | None) -> None:
    newer = _key(A, B, key="b", settled=settled)
    assert "the primary key that the catalogue has (b) may be newer" in str(_places("ab", newer))


def test_the_constraint_of_an_earlier_message_is_still_the_key() -> None:
    newer = _key(A, B, key="b", settled=None)
    assert _places("ab", newer, KeyPlaces((1,), "", THE_KEY, (2,), (INT4,))) == (1,)
    assert "may be newer" in str(_places("ab", newer, KeyPlaces((1,), "", 76, (2,), (INT4,))))
    assert "may be newer" in str(_places("ab", newer, KeyPlaces()))


def test_a_column_with_a_new_type_has_the_key_made_anew() -> None:
    remade = _key(A, replace(B, settled=False, remade=True), key="b", settled=None)
    assert _places("ab", remade, KeyPlaces((1,), "", 76, (2,), (INT8,))) == (1,)
    assert "may be newer" in str(_places("ab", remade, KeyPlaces((1,), "", 76, (2,), (INT4,)))), "the type is the same"
    assert "may be newer" in str(_places("ab", remade, KeyPlaces((0,), "", 76, (1,), (INT8,)))), "of another column"
    before_it = places_of(_logged("ab", INT8), remade, KeyPlaces((1,), "", 76, (2,), (INT8,)))
    assert "cannot be distinguished" in before_it.problem


def test_a_key_that_was_dropped() -> None:
    known = KeyPlaces((0,), "", THE_KEY, (1,), (INT4,))
    gone = "does not have its primary key any more"
    assert gone in str(_places("ab", _key(A, B, key="", settled=None), known))
    assert gone in str(_places("ab", _key(A, B, key="", settled=False)))
    assert _places("ab", _key(A, B, key="", settled=True), known) == ()
    assert _places("ab", _key(A, B, key="", settled=None)) == ()


@pytest.mark.parametrize(
    ("logged", "columns", "key", "expected"),
    [
        ("ab", (replace(A, name="z", settled=False), B), "z", (0,)),
        ("ab", (A, replace(B, name="z", settled=False)), "z", (1,)),
        # The names were swapped since.
        ("ab", (replace(A, name="b", settled=False), replace(B, name="a", settled=False)), "b", (0,)),
        # A column before it was dropped long ago, and one since.
        ("bc", (replace(A, dropped=True), B, replace(C, name="z", settled=False)), "z", (1,)),
        ("abc", (replace(A, dropped=True, settled=False), B, replace(C, name="z", settled=False)), "z", None),
        ("abc", (replace(A, dropped=True, settled=False), B, C), "c", (2,)),
        # The log may have a generated column, or not.
        ("abc", (replace(A, generated=True), B, replace(C, name="z", settled=False)), "z", None),
        # What is before it is not what the log has there.
        ("ac", (A, B, replace(C, name="z", settled=False)), "z", None),
        ("xb", (A, replace(B, name="z", settled=False)), "z", None),
        # Neither its type nor its name may be another one.
        ("ab", (replace(A, type=INT8), B), "a", None),
        ("ab", (replace(A, type=INT8, settled=False), B), "a", None),
        ("ab", (A, C), "c", None),
    ],
)
def test_a_column_is_found_where_it_was(
    logged: str, columns: tuple[CatalogueColumn, ...], key: str, expected: tuple[int, ...] | None
) -> None:
    found = _places(logged, _key(*columns, key=key))
    if expected is None:
        assert f"has a column {key} which cannot be distinguished" in str(found)
    else:
        assert found == expected


def test_two_columns_of_a_key_are_never_one_of_the_log() -> None:
    """One has kept its row of the catalogue, the other one was renamed, and the place of that has the first one's."""
    first = replace(A, name="z", settled=False)
    assert "were renamed since" in str(_places("ab", _key(first, replace(B, name="a"), key="za")))


def test_types_of_other_columns_do_not_matter() -> None:
    columns = (RelationColumn("a", INT4, -1, True), RelationColumn("b", TEXT, -1, True))
    assert places_of(Relation(9, "shop", "t", FULL, columns), _key(A, B, key="a"), None).places == (0,)
