"""Publication and slots as SQL: what is missing, what is there, who needs it, and statements that are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.doctor import server_objects
from datastores.postgres.log import slots
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Row, ServerError
from datastores.postgres.server.state import ServerState, Slot
from datastores.postgres.tables.identities import Refusal, TableIdentity
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.ports.datastore import Login, ServerObjects

ADDRESS = Address("127.0.0.1", 5432, "app", "shop", publication="wormhole_shop", slot="wormhole_shop")
HELD = Slot("wormhole_shop_held", "pgoutput", "shop", False, 0, 0x100, 0x120, "reserved", None)
LEAD = replace(HELD, name="wormhole_shop_lead")
READY = ServerState("71", 1, 5 << 20, 5 << 20, 150004, "logical", 0, 60.0, True, {HELD.name: HELD, LEAD.name: LEAD})
KEYED = TableIdentity("public", "orders", "d", 1, 10, published=False, readable=True)
KEYLESS = replace(KEYED, name="events", key_columns=0, would_refuse=Refusal.NO_KEY)


class Server:
    def __init__(self, state: ServerState = READY) -> None:
        self.state = state
        self.tables = [KEYED]
        self.readers: list[Row] = []
        self.movers: list[Row] = []
        self.logs: list[Row] = []
        self.ran: list[str] = []
        self.refuses: dict[str, str] = {}
        self.closed = 0

    def query(self, sql: str, **_options: Any) -> list[Row]:
        if "AND active" in sql:
            return self.readers
        if "pg_locks" in sql:
            return self.movers
        if "held|lead" in sql:
            return self.logs
        for words, code in self.refuses.items():
            if words in sql:
                raise ServerError("refused", sqlstate=code)
        self.ran.append(sql)
        return []

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(server_objects, "connect", lambda *_: server)
    monkeypatch.setattr(server_objects, "read_state", lambda *_: server.state)
    monkeypatch.setattr(server_objects, "read_tables", lambda *_: server.tables)
    return server


def found(server: Server, state: ServerState = READY) -> ServerObjects:
    server.state = state
    before = server.closed
    objects = server_objects.find(ADDRESS)
    assert server.closed == before + 1
    return objects


def test_what_is_missing_is_made_in_an_order_that_works(server: Server) -> None:
    nothing = found(server, replace(READY, publication=False, slots={}))
    assert nothing.missing == (
        'CREATE PUBLICATION "wormhole_shop" FOR TABLE "public"."orders" WITH (publish_via_partition_root = true);',
        "SELECT pg_create_logical_replication_slot('wormhole_shop_held', 'pgoutput');",
        "SELECT pg_copy_logical_replication_slot('wormhole_shop_held', 'wormhole_shop_lead');",
    )
    assert nothing.present == ()
    assert nothing.kept == ""
    assert found(server, replace(READY, slots={HELD.name: HELD})).missing == nothing.missing[2:]


def test_a_publication_lists_the_tables_whose_changes_stay_permitted(server: Server) -> None:
    """It has no table that is created later: that one may lack a key."""
    state = replace(READY, publication=False)
    server.tables = [KEYED, KEYLESS, replace(KEYED, schema="s", name="parent", only=True)]
    objects = found(server, state)
    assert (
        ' FOR TABLE "public"."orders", ONLY "s"."parent" WITH (publish_via_partition_root = true);'
        in (objects.missing[0])
    )
    assert "public.events" in objects.left_out
    newer = found(server, replace(state, version=180001)).missing[0]
    assert newer.endswith(" WITH (publish_via_partition_root = true, publish_generated_columns = stored);")
    server.tables = []
    assert found(server, state).missing[0] == (
        'CREATE PUBLICATION "wormhole_shop" WITH (publish_via_partition_root = true);'
    )


def test_a_publication_that_is_there_gets_only_what_is_named(server: Server) -> None:
    server.tables = [KEYED, KEYLESS, replace(KEYED, name="users", published=True)]
    assert found(server).missing == ()
    assert "public.orders" in found(server).left_out
    assert server_objects.find(ADDRESS, ["public.*"]).missing == (
        'ALTER PUBLICATION "wormhole_shop" ADD TABLE "public"."orders";',
    )
    assert server_objects.find(ADDRESS, ["*.users"]).missing == ()


def test_what_is_there_is_dropped_in_the_reverse_order(server: Server) -> None:
    objects = found(server)
    assert objects.missing == ()
    assert objects.present == (
        "SELECT pg_drop_replication_slot('wormhole_shop_lead');",
        "SELECT pg_drop_replication_slot('wormhole_shop_held');",
        'DROP PUBLICATION "wormhole_shop";',
    )
    assert "from 0/120 on for the oldest datamarker (4 MiB)" in objects.kept
    assert objects.in_use == ""
    assert found(server, replace(READY, slots={HELD.name: replace(HELD, wal_status="lost")})).kept == ""


def test_who_reads_is_named(server: Server) -> None:
    server.readers = [("wormhole_shop_77_ab12_1", "4711")]
    objects = found(server)
    assert objects.in_use == "a publisher or a tail reads the log (the slot wormhole_shop_77_ab12_1, process 4711)"
    assert objects.publisher == ""
    server.movers = [("4712", None)]
    objects = found(server)
    assert objects.in_use == objects.publisher
    assert "moves the slots wormhole_shop_* (process 4712 of the server, from its own host)" in objects.publisher


def test_a_reader_of_another_log_is_none_of_this_one() -> None:
    of_db, of_db_1 = (re.compile(server_objects.copies_of(name)) for name in ("wormhole_db", "wormhole_db_1"))
    for copy in ("wormhole_db_1_12345_ab12_1", "wormhole_db_1_1234_5678_9"):
        assert of_db_1.search(copy)
        assert not of_db.search(copy)
    assert of_db.search("wormhole_db_12345_ab12_1")


def test_other_logs_of_the_database_are_named(server: Server) -> None:
    server.logs = [("wormhole_shop_held",), ("wormhole_shop_lead",), ("wormhole_two_lead",), ("sales_lead",)]
    assert found(server).others == ("slot=wormhole_two",)


@pytest.mark.parametrize("changes", [{"database": "crm"}, {"plugin": "wal2json"}])
def test_a_slot_that_is_not_this_logs_is_neither_taken_nor_dropped(server: Server, changes: dict[str, str]) -> None:
    """Slots have one name for all databases of a server: `Shop` and `shop` would share them."""
    server.state = replace(READY, slots={HELD.name: replace(HELD, **changes)})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not of pgoutput and shop") as error:
        server_objects.find(ADDRESS)
    assert "give the log another name" in (error.value.hint or "")


def test_a_slot_that_has_lost_its_log_is_made_anew(server: Server) -> None:
    gone = replace(LEAD, wal_status="lost")
    assert found(server, replace(READY, slots={HELD.name: HELD, LEAD.name: gone})).missing == (
        "SELECT pg_drop_replication_slot('wormhole_shop_lead');",
        "SELECT pg_copy_logical_replication_slot('wormhole_shop_held', 'wormhole_shop_lead');",
    )
    assert found(server, replace(READY, slots={LEAD.name: gone})).missing == (
        "SELECT pg_drop_replication_slot('wormhole_shop_lead');",
        "SELECT pg_create_logical_replication_slot('wormhole_shop_held', 'pgoutput');",
        "SELECT pg_copy_logical_replication_slot('wormhole_shop_held', 'wormhole_shop_lead');",
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("42501", "run these as a superuser"),
        ("57014", "look for the oldest in pg_stat_activity"),
        ("55000", "correct that"),
    ],
)
def test_what_was_not_run_is_listed(server: Server, code: str, words: str) -> None:
    server.refuses = {"two": code}
    with pytest.raises(SourceUnavailable) as error:
        server_objects.run(ADDRESS, ["one;", "two;", "three;"])
    assert words in (error.value.hint or "")
    assert (error.value.hint or "").splitlines()[1:] == ["two;", "three;"]
    assert server.ran[1:] == ["one;"]
    assert server.closed == 1
    server.refuses = {}
    server_objects.run(ADDRESS, ["one;", "two;"])
    assert server.ran[-2:] == ["one;", "two;"]


def test_standbys_may_have_the_slots_from_17_on(server: Server) -> None:
    statements = found(server, replace(READY, version=170001, slots={})).missing
    assert [one.endswith("failover => true);") for one in statements] == [True, True]
    assert slots.create_statements("n", 160004)[1].startswith("SELECT pg_copy_logical_replication_slot(")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgres://u@h/shop", "postgres://u@h/shop?publication=wormhole_db_1&slot=wormhole_db_1"),
        ("postgres://u@h/shop?slot=mine", "postgres://u@h/shop?slot=mine&publication=wormhole_db_1"),
        ("postgres://u@h/shop?slot=s&publication=p", "postgres://u@h/shop?slot=s&publication=p"),
    ],
)
def test_a_url_gets_the_names_of_its_log(url: str, named: str) -> None:
    assert DATASTORE.url_of_log(url, "DB-1") == named
    configured = "postgres://other@h/shop?slot=configured"
    assert ("slot=configured" in DATASTORE.url_of_log(url, "DB-1", configured)) == ("slot" not in url)
    DATASTORE.check_url(named)
    assert DATASTORE.name_in(url) == "shop"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("postgres://u@127.0.0.1/shop", "db-1"), ("postgresql://v@localhost:5432/crm", "DB_1"), True),
        (("postgres://u@h/shop?slot=s", "a"), ("postgres://u@h/shop?slot=s&publication=p", "b"), True),
        (("postgres://u@h/shop", "a"), ("postgres://u@h/shop", "b"), False),
        (("postgres://u@h/shop", "a"), ("postgres://u@h:5433/shop", "a"), False),
        (("postgres://u@/shop?host=/run", "a"), ("postgres://u@/shop?host=/tmp", "a"), False),
    ],
)
def test_which_logs_would_share_slots(one: tuple[str, str], other: tuple[str, str], same: bool) -> None:
    assert (DATASTORE.reserved(*one) == DATASTORE.reserved(*other)) == same


def test_the_datastore_takes_the_databases_name_for_a_log_that_it_does_not_know(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Address] = []

    def connect(address: Address) -> Server:
        asked.append(address)
        return server

    monkeypatch.setattr(server_objects, "connect", connect)
    statements: Sequence[str] = DATASTORE.server_objects("postgres://u@h/shop", Login()).present
    DATASTORE.run_statements("postgres://u@h/shop?slot=mine", Login(), statements)
    assert [one.slot for one in asked] == ["wormhole_shop", "mine"]
    assert tuple(server.ran[1:]) == tuple(statements)
