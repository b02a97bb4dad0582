"""What ``doctor`` says of a database, by what it answers: each finding and its next step. A real server's answers are
looked at in tests/integration/test_postgres_source.py; this has also those that Debian's server cannot give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from datastores.postgres.doctor import examination as doctor
from datastores.postgres.doctor.examination import measure_growth
from datastores.postgres.doctor.publication import _CHECKS
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import Row
from datastores.postgres.server.state import ServerState, Slot
from datastores.postgres.tables.identities import Refusal, TableIdentity
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.findings import Finding, Report, Severity

ADDRESS = Address("127.0.0.1", 5432, "app", "shop", publication="wormhole_log", slot="wormhole_log")
HELD = Slot("wormhole_log_held", "pgoutput", "shop", False, 0, 0x100, 0x120, "reserved", None)
LEAD = replace(HELD, name="wormhole_log_lead")
READY = ServerState(
    "71", 1, 0x5000, 0x5000, 150004, "logical", 64 << 30, 60.0, True, {HELD.name: HELD, LEAD.name: LEAD}
)
KEYED = TableIdentity("public", "orders", "d", 1, 10, published=True, readable=True)


class Server:
    """Answers what ``doctor`` asks. ``free``: replication slots and walsenders of 10 that are not used."""

    def __init__(self, *, state: ServerState = READY, encrypted: bool = False) -> None:
        self.state = state
        self.version = state.version
        self.encrypted = encrypted
        self.replicates = True
        self.used = 0
        self.tables = [KEYED]
        self.sends: Row = ("t", "t", "t", "t", "t", "1000000000", "f")  # four operations, by root, age, all tables
        self.filtered: list[Row] = []
        self.named_values: list[Row] = []
        self.unlogged: list[Row] = []
        self.generated: list[Row] = []
        self.publishes_generated = "n"
        self.awaited: list[Row] = []
        self.movers: list[Row] = []
        self.idle: str | None = None
        self.logs: list[Row] = [("wormhole_log_held",), ("wormhole_log_lead",)]
        self.publications: list[Row] = [("wormhole_log",)]
        self.closed = False

    def query(self, sql: str, **_options: Any) -> list[Row]:
        if "rolreplication" in sql:
            return [("t" if self.replicates else "f",)]
        if "current_setting('max_" in sql:
            return [("10", str(self.used))]
        answers: dict[str, list[Row]] = {
            "pubviaroot": [self.sends],
            "pubgencols": [(self.publishes_generated,)],
            "attgenerated": self.generated,
            "pg_publication_rel": self.filtered,
            "aclitem": self.named_values,
            "relispartition AND (c.relpersistence": self.unlogged,
            "synchronized_standby_slots": self.awaited,
            "pg_locks": self.movers,
            "idle_replication_slot_timeout": [(self.idle,)],
            "pg_stat_wal": [("7200", "3600")],
            "held|lead": self.logs,
            "SELECT pubname": self.publications,
        }
        return next(answer for words, answer in answers.items() if words in sql)

    def close(self) -> None:
        self.closed = True


Examine = Callable[..., Report]


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch) -> Examine:
    def examined(server: Server, address: Address = ADDRESS, hidden_bytes: str = "", pooled: str = "") -> Report:
        def connect(*_: object, walsender: bool = False, **_options: object) -> Server:
            if walsender and pooled:
                raise SourceUnavailable(pooled, hint="name the server behind it")
            return server

        def checksum(*_place: object) -> int:
            if hidden_bytes:
                raise SourceUnavailable(hidden_bytes)
            return 1

        monkeypatch.setattr(doctor, "connect", connect)
        monkeypatch.setattr(doctor, "read_state", lambda *_: server.state)
        monkeypatch.setattr(doctor, "read_tables", lambda *_: server.tables)
        monkeypatch.setattr(doctor, "checksum_of_log", checksum)
        report = doctor.check(address)
        assert server.closed
        return report

    return examined


def named(report: Report) -> Mapping[str, Finding]:
    return {one.check: one for one in report.findings if one.severity is not Severity.OK}


def with_slots(**changes: Any) -> ServerState:
    changed = replace(HELD, **changes)
    return replace(READY, slots={HELD.name: changed, LEAD.name: LEAD})


def test_a_prepared_server_has_no_finding_but_facts(examine: Examine) -> None:
    report = examine(Server())
    assert named(report) == {}
    assert report.facts["server"] == "PostgreSQL 15.4"
    assert report.facts["slots"] == "wormhole_log_held, wormhole_log_lead"
    assert [(one.database, one.table, one.rows) for one in report.tables] == [("public", "orders", 10)]


@pytest.mark.parametrize(
    ("state", "check", "next_step"),
    [
        (replace(READY, wal_level="replica"), "wal_level", "ALTER SYSTEM SET wal_level = logical;"),
        (replace(READY, publication=False), "publication", 'CREATE PUBLICATION "wormhole_log"'),
        (replace(READY, slots={}), "slots", "pg_create_logical_replication_slot('wormhole_log_held'"),
        (with_slots(wal_status="lost"), "slots", "pg_drop_replication_slot"),
        (with_slots(plugin="wal2json"), "slots", "?slot=NAME"),
        (with_slots(active_pid=77), "slot_taken", "pg_terminate_backend(77)"),
        (with_slots(catalog_age=200_000_000), "catalog_xmin", "wormholectl flows"),
        (with_slots(wal_status="lost", invalid="idle_timeout"), "slots", "pg_drop_replication_slot"),
        (with_slots(wal_status="unreserved"), "wal_status", "ALTER SYSTEM SET max_slot_wal_keep_size"),
        (with_slots(safe_bytes=7 << 20), "max_slot_wal_keep_size", "raise max_slot_wal_keep_size"),
        (replace(READY, version=190001), "version", "upgrade Wormhole"),
        (replace(READY, keep_bytes=0), "max_slot_wal_keep_size", "ALTER SYSTEM SET max_slot_wal_keep_size"),
    ],
)
def test_what_the_server_lacks_is_named_with_its_statement(
    examine: Examine, state: ServerState, check: str, next_step: str
) -> None:
    found = named(examine(Server(state=state)))
    assert set(found) == {check}
    assert next_step in found[check].next_step


@pytest.mark.parametrize(
    ("version", "failover", "check", "next_step"),
    [
        (150004, None, "failover", "upgrade the server to 17 or later"),
        (170002, False, "failover", "pg_create_logical_replication_slot('wormhole_log_held', 'pgoutput', failover"),
        (170002, True, "", ""),
    ],
)
def test_what_a_failover_would_do_is_shown_with_a_standby(
    examine: Examine, version: int, failover: bool | None, check: str, next_step: str
) -> None:
    both = {name: replace(slot, failover=failover) for name, slot in READY.slots.items()}
    server = Server(state=replace(READY, version=version, slots=both))
    assert named(examine(server)) == {}, "without a standby nothing is said"
    server.state = replace(server.state, standbys=1)
    found = named(examine(server))
    assert set(found) == ({check} if check else set())
    assert next_step in "".join(one.next_step for one in found.values())


@pytest.mark.parametrize(
    ("standby", "severity", "says"),
    [
        (("s1", "t", "t", "0/10"), None, ""),
        (("s1", "t", "f", "0/10"), Severity.WARN, "names s1, which no standby reads"),
        (("s1", "f", "f", None), Severity.PROBLEM, "names s1, which the server does not have"),
    ],
)
def test_slots_that_wait_for_a_standby_which_is_away(
    examine: Examine, standby: Row, severity: Severity | None, says: str
) -> None:
    """As on a standby that was promoted with the setting of its primary."""
    server = Server(state=replace(with_slots(failover=True), version=170002))
    server.awaited = [standby]
    found = named(examine(server)).get("synchronized_standby_slots")
    assert (found and found.severity) == severity
    assert found is None or (says in found.what and "synchronized_standby_slots = ''" in found.next_step)
    server.state = replace(with_slots(failover=False), version=170002)
    assert "synchronized_standby_slots" not in named(examine(server)), "these wait for nobody"


def test_a_slot_that_the_publisher_is_moving_is_not_taken(examine: Examine) -> None:
    server = Server(state=with_slots(active_pid=77))
    server.movers = [("77", None)]
    assert named(examine(server)) == {}


@pytest.mark.parametrize(
    ("sends", "check", "next_step"),
    [
        (("t", "f", "t", "f", "t", "1000000000", "f"), "publication_operations", "insert, update, delete, truncate"),
        (("t", "t", "t", "t", "f", "1000000000", "f"), "publication_root", "publish_via_partition_root = true"),
        (("t", "t", "t", "t", "t", "5", "f"), "publication_age", "accept-loss"),
        (("t", "t", "t", "t", "t", "1000000000", "t"), "publication_of_all_tables", "with its primary key"),
    ],
)
def test_what_a_publication_leaves_out(examine: Examine, sends: Row, check: str, next_step: str) -> None:
    server = Server(state=with_slots(catalog_age=10))
    server.sends = sends
    found = named(examine(server))
    assert set(found) == {check}
    assert next_step in found[check].next_step


@pytest.mark.parametrize(
    ("answer", "value", "check", "place", "words"),
    [
        ("idle", "1d", "idle_replication_slot_timeout", "next_step", "SET idle_replication_slot_timeout = 0;"),
        ("named_values", [("public.jobs",)], "named_values", "what", "public.jobs"),
        ("unlogged", [("public.orders_2026",)], "unlogged_partition", "what", "public.orders_2026"),
        ("filtered", [("public.orders",)], "publication_filters", "what", "public.orders"),
    ],
)
def test_one_answer_is_one_finding(
    examine: Examine, answer: str, value: object, check: str, place: str, words: str
) -> None:
    server = Server()
    setattr(server, answer, value)
    assert words in getattr(named(examine(server))[check], place)


@pytest.mark.parametrize(
    ("known", "publications", "slot", "publication"),
    [
        (["wormhole_db1_held", "wormhole_db1_lead"], ["wormhole_db1", "theirs"], "wormhole_db1", "wormhole_db1"),
        (["wormhole_db1_held"], ["mine"], "wormhole_db1", "mine"),
        (["wormhole_db1_lead", "sales_lead"], ["mine", "theirs"], "wormhole_db1", "wormhole_db1"),
        (["mine_held", "mine_lead"], ["wormhole_two"], "mine", "mine"),
        ([], ["wormhole_two"], "wormhole_log", "wormhole_two"),
        ([], [], "wormhole_log", "wormhole_log"),
    ],
)
def test_the_only_log_of_a_database_is_found(
    examine: Examine, known: list[str], publications: list[str], slot: str, publication: str
) -> None:
    server = Server()
    server.logs, server.publications = [(name,) for name in known], [(name,) for name in publications]
    facts = examine(server).facts
    assert (facts["slots"], facts["publication"]) == (f"{slot}_held, {slot}_lead", publication)
    named_in_url = replace(ADDRESS, names_slot=True, names_publication=True)
    assert examine(server, named_in_url).facts["publication"] == "wormhole_log"


def test_of_two_logs_none_is_taken_for_the_other(examine: Examine) -> None:
    server = Server()
    server.logs = [("wormhole_log_held",), ("wormhole_log_lead",), ("mine_held",), ("mine_lead",)]
    with pytest.raises(UsageError, match=r": mine, wormhole_log \[wrong-request\]") as error:
        examine(server)
    assert "--log NAME" in (error.value.hint or "")
    named_in_url = replace(ADDRESS, slot="mine", names_slot=True)
    assert examine(server, named_in_url).facts["slots"] == "mine_held, mine_lead"


def test_the_room_that_is_left_is_told(examine: Examine) -> None:
    report = examine(Server(state=with_slots(safe_bytes=7 << 20)))
    [told] = [one.what for one in report.findings if one.check == "max_slot_wal_keep_size"]
    assert "65536 MiB" in told
    assert "7 MiB more" in told


@pytest.mark.parametrize(("used", "severity"), [(6, None), (8, Severity.WARN), (10, Severity.PROBLEM)])
def test_slots_and_walsenders_for_readers_are_counted(examine: Examine, used: int, severity: Severity | None) -> None:
    server = Server()
    server.used = used
    found = named(examine(server))
    settings = ("max_replication_slots", "max_wal_senders")
    assert [found[name].severity if name in found else None for name in settings] == [severity, severity]


def test_an_account_without_rights_is_given_the_grants(examine: Examine) -> None:
    server = Server()
    server.replicates = False
    assert "walsender" not in named(examine(server, pooled="must be superuser or replication role")), "it is said"
    server.tables = [KEYED, replace(KEYED, schema="shop", name="hidden", readable=False)]
    found = named(examine(server))
    assert found["replication"].next_step == 'give it:\nALTER ROLE "app" REPLICATION;'
    assert "shop.hidden" in found["select"].what
    assert 'GRANT SELECT ON ALL TABLES IN SCHEMA "shop" TO "app";' in found["select"].next_step


@pytest.mark.parametrize(
    ("tables", "severity", "words"),
    [
        ([], Severity.WARN, "has no table"),
        ([replace(KEYED, published=False)], Severity.PROBLEM, "has no table"),
        ([KEYED, replace(KEYED, name="a", published=False)], Severity.WARN, "leaves out public.a"),
        ([KEYED, *(replace(KEYED, name=f"t{n}", published=False) for n in range(10))], Severity.WARN, "and 2 more"),
    ],
)
def test_tables_that_the_publication_lacks(
    examine: Examine, tables: list[TableIdentity], severity: Severity, words: str
) -> None:
    server = Server()
    server.tables = tables
    found = named(examine(server))["publication"]
    assert found.severity is severity
    assert words in found.what


def test_a_table_whose_writes_would_be_refused_is_in_no_statement(examine: Examine) -> None:
    keyless = replace(KEYED, name="keyless", key_columns=0, would_refuse=Refusal.NO_KEY)
    server = Server(state=replace(READY, publication=False))
    server.tables = [KEYED, keyless]
    assert "keyless" not in named(examine(server))["publication"].next_step
    server = Server()
    server.tables = [KEYED, replace(KEYED, name="added", published=False), replace(keyless, published=False)]
    step = named(examine(server))["publication"].next_step
    assert step.splitlines()[1] == 'ALTER PUBLICATION "wormhole_log" ADD TABLE "public"."added";'
    assert "public.keyless" in step.splitlines()[2]


@pytest.mark.parametrize(("refusal", "check"), [(one, _CHECKS.get(one, "replica_identity")) for one in Refusal])
def test_tables_whose_writes_are_refused(examine: Examine, refusal: Refusal, check: str) -> None:
    server = Server()
    server.tables = [replace(KEYED, name="refused", refusal=refusal)]
    found = named(examine(server))[check]
    assert (found.severity, "public.refused" in found.what) == (Severity.PROBLEM, True)
    assert found.next_step.splitlines()[1].startswith("ALTER ")


def test_a_table_without_a_key_in_the_log(examine: Examine) -> None:
    server = Server()
    server.tables = [replace(KEYED, name="keyless", identity="f", key_columns=0)]
    assert named(examine(server))["replica_identity"].severity is Severity.WARN


def test_a_log_whose_bytes_are_not_sent_is_told(examine: Examine) -> None:
    found = named(examine(Server(), hidden_bytes="no pg_hba.conf entry"))["log_bytes"]
    assert "no pg_hba.conf entry" in found.what
    assert "pg_hba.conf" in found.next_step


def test_who_answers_questions_and_sends_no_log_is_a_problem(examine: Examine) -> None:
    """A connection pooler does."""
    found = named(examine(Server(), pooled="unsupported startup parameter: replication"))["walsender"]
    assert (found.severity, found.next_step) == (Severity.PROBLEM, "name the server behind it")
    assert "unsupported startup parameter" in found.what


@pytest.mark.parametrize(
    ("host", "encrypted", "sslmode", "words"),
    [
        ("db", False, "prefer", "not encrypted"),
        ("db", True, "require", "certificate is not checked"),
        ("db", True, "verify-full", ""),
    ],
)
def test_the_way_to_the_server(examine: Examine, host: str, encrypted: bool, sslmode: Any, words: str) -> None:
    found = named(examine(Server(encrypted=encrypted), replace(ADDRESS, host=host, sslmode=sslmode))).get("tls")
    assert (found is None) == (words == "")
    assert found is None or words in found.what


def test_a_password_that_others_may_read_is_told(examine: Examine) -> None:
    found = named(examine(Server(), replace(ADDRESS, remarks=("others may read it",))))
    assert found["password"].what == "others may read it"


def test_a_key_with_a_generated_column_is_found_unless_the_server_sends_it(examine: Examine) -> None:
    server = Server()
    server.generated = [
        ("7", "public", "fine", None),
        ("8", "public", "orders", "total"),
        ("8", "public", "orders", "tax"),
    ]
    found = named(examine(server))["generated_key"]
    assert found.severity is Severity.PROBLEM
    assert (
        found.what == "the key of public.orders has the generated column total, which the server leaves out of the log"
    )
    newer = Server(state=replace(READY, version=180001))
    newer.generated = server.generated
    assert "generated_key" in named(examine(newer))
    newer.publishes_generated = "s"
    assert "generated_key" not in named(examine(newer))


@dataclass
class Connection:
    """Answers the one query."""

    version: int
    rows: list[tuple[str | None, ...]]

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        assert "pg_stat_wal" in sql
        return self.rows


@pytest.mark.parametrize(
    ("version", "rows", "expected"),
    [
        (160004, [("7200", "3600.5")], "pg_stat_wal, since its statistics were reset"),
        (160004, [("7200", "12")], "its statistics (pg_stat_wal) are younger than ten minutes"),
        (160004, [("7200", None)], "its statistics (pg_stat_wal) are younger than ten minutes"),
        (160004, [], "its statistics (pg_stat_wal) are younger than ten minutes"),
        (130023, [], "PostgreSQL 13 does not count what it writes to its log"),
    ],
)
def test_what_the_server_counts(version: int, rows: list[tuple[str | None, ...]], expected: str) -> None:
    found = measure_growth(Connection(version, rows))  # type: ignore[arg-type]
    assert (found.how or found.unknown) == expected
    assert bool(found.rate) is bool(found.how)
