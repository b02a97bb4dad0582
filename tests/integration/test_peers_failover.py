"""What other tools test of a failover, set to ours: another server, or another publisher, goes on at the datamarker.

The cases are those of other tools' own tests, or next to them, and run on real servers; what comes is compared with
what they hold.

- A server with other file names and other numbers of files, for a reader that is far behind (Maxwell, ``RecoveryTest``:
  ``testFailOver``, ``testRecoveryIntegrationWithLaggedMaxwell``), and for one whose datamarker has no GTID (Debezium,
  ``shouldStartWithEmptyGtidSet``): `test_maxwell_failover_of_a_reader_that_lags`.
- A server whose id is another one, by which Maxwell keeps its positions (``MysqlPositionStoreTest``,
  ``testMultiplePositionRecovery``): `test_maxwell_a_server_whose_id_changes`.
- A server without GTIDs (``testBasicRecovery``): ``tests/unit/datastores/mysql/test_standing.py``,
  and one that is switched to them: `test_maxwell_gtids_that_are_switched_on`.
- Transactions with tags (Debezium, ``MySqlGtidTagsIT.shouldRestartFromTaggedGtid``): `test_dbz_1200_tags`.
- A set of GTIDs that has holes (python-mysql-replication, ``GtidTests``; Canal, ``MysqlGTIDSetTest.testUpdate``):
  `test_gtid_sets_with_holes`.
- A server that was made from a dump, and never had what the dump holds in its log (``shouldProcessPurgedGtidSet``,
  ``shouldResumeStreamingAfterRestartWithPurgedGtidSet``): `test_dbz_1184_a_copy_made_from_a_dump`.
- A server that the log knows and the copy does not, which Debezium leaves out with ``gtid.source.excludes``
  (``shouldFilterServerUuids``): `test_dbz_a_source_that_the_copy_never_had`.
- What was written to the copy by itself (``retainAllKnownTsids``): `test_what_was_written_to_the_copy_by_itself`.
- A reader that was inside of a transaction (Databus, ``testRelayFailoverPartialWindow1`` and ``2``):
  `test_databus_another_publisher_after_half_a_transaction`,
  `test_databus_another_publisher_after_half_an_xa_transaction`.
- The place on another server, found by time (Canal, ``CanalServerWithEmbedded_StandbyTest``):
  `test_canal_a_place_on_the_copy_by_time`.
- A transaction that is open at the datamarker (``shouldNotLoseDataOnRestartWithInterleavedTransactions``):
  `test_dbz_76_transactions_that_are_open_at_the_promotion`, and XA: `test_xa_that_is_prepared_at_the_takeover`.
- A second promotion, of which none of them has a test: `test_a_standby_that_is_promoted_after_another_one`.
- Slots on a new primary (``shouldCreateFailOverSlot``, ``shouldStopConnectorOnSlotRecreation``), one that is ahead
  (``shouldAdvanceOffsetToSlotWithTrustSlotStrategy``): ``test_postgres_histories.py``, and
  ``test_postgres_source.py: test_airbyte_46571_a_slot_that_another_program_advanced_is_a_loss``.
- Many that want one log, a session that is lost, an owner that returns (Canal, ``ServerRunningTest``; Databus,
  ``TestLeaderElect``): ``tests/contract/test_coordinator.py``, ``tests/simulation``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.mysql.datastore import DATASTORE
from tests.integration.test_postgres_histories import Standby
from tests.support.databases import FLAVOURS, DatabaseServer, NewServer, purge, start_server
from tests.support.hosts_state import HostsState
from tests.support.postgres_harness import prepare_database, source_of
from tests.support.postgres_server import NewPostgres, PostgresServer
from tests.support.replicas import REPLICA, promote, replicate
from tests.support.server_tail import Tail
from wormhole.model.errors import Diverged, PositionPurged, UnsupportedLog
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Login
from wormhole.ports.testing.reading import Read, ReadUpdate, read_log, read_until

Tails = Callable[..., Tail]


class Copies:
    """A server and its replica, and the publisher of each, which share the log's state. Rows are ``shop.t (id, v)``."""

    def __init__(self, first: DatabaseServer, second: DatabaseServer, tail: Tails) -> None:
        self.first = first
        self.second = second
        self._tail = tail
        self.shared = HostsState()
        if first.sql("SHOW DATABASES LIKE 'shop'"):
            first.sql("DROP DATABASE shop")
        self.one = tail(first, state="a", shared=self.shared)
        self.start = self.one.source.latest()
        first.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")

    def other(self) -> Tail:
        """The publisher of the replica, which takes over."""
        self.one.stop()
        return self._tail(self.second, state="b", shared=self.shared)

    def back(self) -> Tail:
        """The first publisher, which takes over again."""
        return self._tail(self.first, state="a", shared=self.shared)

    def catch_up(self) -> None:
        """Wait until the replica has executed everything."""
        assert self.second.sql(f"SELECT {_WAIT[self.first.flavour]}('{executed(self.first)}', 60)") == [(0,)]


_SOME = pytest.mark.parametrize("flavour", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
_MYSQL = pytest.mark.parametrize("replicated", ["mysql"], indirect=True)
_WAIT = {"mariadb": "MASTER_GTID_WAIT", "mysql": "WAIT_FOR_EXECUTED_GTID_SET"}


@pytest.fixture(scope="module", params=list(FLAVOURS))
def replicated(request: pytest.FixtureRequest) -> Iterator[tuple[DatabaseServer, DatabaseServer]]:
    """A server and its replica, of every flavour in turn; they go on replicating from test to test."""
    with (
        start_server(request.param, log_slave_updates="ON") as first,
        start_server(request.param, **REPLICA, log_bin="copied") as second,
    ):
        replicate(first, second)
        yield first, second


@pytest.fixture
def copies(replicated: tuple[DatabaseServer, DatabaseServer], tail: Tails) -> Copies:
    return Copies(*replicated, tail)


def insert(server: DatabaseServer, *ids: int) -> None:
    """Each a transaction."""
    server.sql(*(f"INSERT INTO shop.t VALUES ({n}, 'row {n}')" for n in ids))


def executed(server: DatabaseServer) -> str:
    """What a server has, as GTIDs."""
    variable = "gtid_current_pos" if server.flavour == "mariadb" else "gtid_executed"
    return str(server.sql(f"SELECT @@GLOBAL.{variable}")[0][0]).replace("\n", "")


def rows(server: DatabaseServer) -> list[tuple[Any, ...]]:
    return sorted(server.sql("SELECT id, v FROM shop.t"))


def lacking(server: DatabaseServer, marker: Datamarker) -> str:
    """What it lacks before it is served."""
    return DATASTORE.standing(server.url, Login(server.password_file), [marker.delivered], failover=True).lacking


def values(read: Read) -> list[tuple[object, ...]]:
    return [update.after for update in read.updates]


def updates(read: Read) -> list[ReadUpdate]:
    """Without the time of the commit, which on MySQL is that of the server which is read."""
    return [replace(update, committed_at_us=0) for update in read.updates]


# --- MySQL and MariaDB -----------------------------------------------------------------------------------------------


@_SOME
def test_maxwell_failover_of_a_reader_that_lags(new_server: NewServer, tail: Tails) -> None:
    """It read a third; the rest is in many files of the one server and in a few of the other, under other names.

    Another reader has read nothing since before the first transaction: its datamarker names no GTID, which is no place
    that a server could be asked for.
    """
    first, second = new_server(), new_server(**REPLICA, log_bin="copied")
    replicate(first, second)
    copies = Copies(first, second, tail)
    assert copies.start.delivered == ""
    insert(first, *range(20))
    before = copies.one.read(copies.start)
    for n in range(20, 60, 4):
        insert(first, *range(n, n + 4))
        first.sql("FLUSH BINARY LOGS")
    copies.catch_up()
    first.kill()
    promote(second)
    insert(second, *range(60, 80))
    other = copies.other()
    after = other.read(before.markers[-1])
    assert values(before) + values(after) == rows(second)
    assert updates(other.read(copies.start)) == updates(before) + updates(after)
    assert len(second.binlogs) == 1
    second.sql("FLUSH BINARY LOGS")
    insert(second, 80)
    other.stop()
    again = tail(second, state="b", shared=copies.shared).read(after.markers[-1])
    assert again.keys() == [80]
    assert again.markers[-1].order.incarnation == copies.start.order.incarnation + 1


@_SOME
def test_maxwell_a_server_whose_id_changes(new_server: NewServer, tail: Tails) -> None:
    """The same server and the same files: it counts as another one, whose GTIDs lead on, there and back."""
    server = new_server()
    copies = Copies(server, server, tail)
    insert(server, 1)
    marker = copies.one.read(copies.start).markers[-1]
    insert(server, 2)
    copies.one.stop()
    server.stop()
    uuid = server.data / "auto.cnf"
    before = uuid.read_bytes() if server.flavour == "mysql" else b""
    uuid.unlink(missing_ok=True)
    server.restart(server_id="9")
    insert(server, 3)
    other = copies.other()
    read = other.read(marker)
    assert (read.keys(), read.markers[-1].delivered) == ([2, 3], executed(server))
    other.stop()
    server.stop()
    if before:
        uuid.write_bytes(before)
    server.restart(server_id="1")
    insert(server, 4)
    back = copies.back()
    assert back.read(marker).keys() == [2, 3, 4]
    last = back.read(read.markers[-1])
    assert (last.keys(), last.markers[-1].delivered) == ([4], executed(server))


@_SOME
def test_dbz_1184_a_copy_made_from_a_dump(new_server: NewServer, tail: Tails) -> None:
    """It has executed what the dump holds, and its log begins behind that."""
    first, second = new_server(), new_server(**REPLICA)
    copies = Copies(first, second, tail)
    insert(first, 1, 2)
    marker = copies.one.read(copies.start).markers[-1]
    insert(first, 3)
    dumped = copies.one.read(marker).markers[-1]
    seed(second, first)
    replicate(first, second)
    insert(first, 4)
    copies.catch_up()
    promote(second)
    insert(second, 5)
    assert lacking(second, dumped) == ""
    other = copies.other()
    if first.flavour == "mysql":
        assert other.read(dumped).keys() == [4, 5]
        # One of them was delivered to nobody and is in no log: it is named, and the rest goes on behind it.
        with pytest.raises(PositionPurged) as error:
            other.source.open(marker)
        assert (error.value.first_missing, error.value.last_missing) == behind(second, marker)
    else:
        # The log of a MariaDB does not show what was in front of it: each place there counts as one that it lacks.
        for place in (dumped, marker):
            with pytest.raises(Diverged, match=f"missing the GTID {place.delivered} "):
                other.read(place)
    assert other.read(other.source.earliest()).keys() == [4, 5]


def seed(second: DatabaseServer, first: DatabaseServer) -> None:
    """What a dump of the first server leaves on the second."""
    off = "SET sql_log_bin = 0"
    made = [f"INSERT INTO shop.t VALUES ({key}, '{value}')" for key, value in rows(first)]
    second.sql(off, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)", *made)
    variable = "gtid_slave_pos" if first.flavour == "mariadb" else "gtid_purged"
    second.sql(f"SET GLOBAL {variable} = '{executed(first)}'")


def test_databus_another_publisher_after_half_a_transaction(copies: Copies) -> None:
    """What was delivered of it comes again, from its first update on and the same, however it is cut."""
    insert(copies.first, 1)
    marker = copies.one.read(copies.start).markers[-1]
    many = ", ".join(f"({n}, REPEAT('{n} ', 50))" for n in range(100, 400))
    copies.first.sql(f"INSERT INTO shop.t VALUES {many}")
    insert(copies.first, 2)
    reader, half = copies.one.source.open(marker), Read(last_end=marker.order)
    while not half.pieces or len(half.updates) < 90:
        segment = reader.read(4096, 0.2)
        if segment is not None:
            half.add(segment)
    reader.close()
    assert half.markers == []
    copies.catch_up()
    other = copies.other()
    whole, small = other.read(marker), other.read(marker, 1500)
    assert whole.updates == small.updates
    assert updates(whole)[: len(half.updates)] == updates(half)
    assert sorted(values(whole)) == [row for row in rows(copies.second) if row[0] != 1]
    assert whole.ended == small.ended


def test_databus_another_publisher_after_half_an_xa_transaction(copies: Copies) -> None:
    """It was prepared before other transactions. A datamarker between them and its commit leads back to its rows."""
    many = ", ".join(f"({n}, REPEAT('{n} ', 50))" for n in range(100, 200))
    copies.first.sql("XA START 'x'", f"INSERT INTO shop.t VALUES {many}", "XA END 'x'", "XA PREPARE 'x'")
    insert(copies.first, 1)
    copies.first.sql("XA COMMIT 'x'")
    insert(copies.first, 2)
    read = copies.one.read(copies.start, 4096)
    assert read.keys() == [1, *range(100, 200), 2]
    assert (read.pieces > 1, len(read.markers)) == (True, 2)
    copies.one.stop()
    another = copies.back()
    for marker, keys in zip(read.markers, ([*range(100, 200), 2], []), strict=True):
        again = another.read(marker)
        assert (again.keys(), again.gaps) == (keys, [])
    assert read.markers[-1].read_from == read.markers[-1].order


@_MYSQL
def test_canal_a_place_on_the_copy_by_time(copies: Copies) -> None:
    """The copy lags, and its files begin at other times: nothing that was committed later is passed over."""
    promote(copies.second)
    insert(copies.first, *range(4))
    copies.first.sql("FLUSH BINARY LOGS")
    insert(copies.first, *range(4, 8))
    copies.second.sql("FLUSH BINARY LOGS", "START REPLICA")
    copies.catch_up()
    other = copies.other()
    there = other.read(copies.start).updates
    assert [update.key[0] for update in there] == list(range(8))
    for at in there:
        ids = other.read(other.source.locate_time(at.committed_at_us)).ids()
        assert ids == [update.id for update in other.read(other.source.earliest()).updates[-len(ids) or 10_000 :]]
        assert {update.id for update in there if update.committed_at_us > at.committed_at_us} <= set(ids)


def test_xa_that_is_prepared_at_the_takeover(copies: Copies) -> None:
    """Its rows lie before the datamarker, and the copy is asked for what lies behind it: that they are missing is
    reported, with the transaction that committed them, and what follows comes. The same server is read from them on.
    """
    copies.first.sql("XA START 'x'", "INSERT INTO shop.t VALUES (1, 'row 1')", "XA END 'x'", "XA PREPARE 'x'")
    insert(copies.first, 2)
    before = copies.one.read(copies.start)
    marker = before.markers[-1]
    assert (before.keys(), marker.read_from < marker.order) == ([2], True)
    copies.first.sql("XA COMMIT 'x'")
    insert(copies.first, 3)
    copies.catch_up()
    there = copies.one.read(marker)
    assert (there.keys(), there.gaps) == ([1, 3], [])
    read = copies.other().read(marker)
    assert read.keys() == [3]
    ((_, commit), (_, last)) = there.ended
    assert [(gap.kind, gap.first_missing, gap.last_missing) for gap in read.gaps] == [(LossKind.PURGED, commit, commit)]
    assert read.ended[-1][1] == last


@_SOME
def test_what_was_written_to_the_copy_by_itself(flavour: str, new_server: NewServer, tail: Tails) -> None:
    """It comes, and is missed once it is purged. On MariaDB that takes a domain of its own: of a domain nothing is sent
    that lies before the place, although nobody had it."""
    first, second = new_server(), new_server(**REPLICA, **({"gtid_domain_id": "9"} if flavour == "mariadb" else {}))
    replicate(first, second)
    copies = Copies(first, second, tail)
    insert(first, 1)
    copies.catch_up()
    insert(second, 100)
    if flavour == "mariadb":
        second.sql("SET gtid_domain_id = 0", "INSERT INTO shop.t VALUES (101, 'row 101')")
    insert(first, 2)
    marker = copies.one.read(copies.start).markers[-1]
    insert(first, 3)
    copies.catch_up()
    promote(second)
    insert(second, 4)
    assert lacking(second, marker) == ""
    other = copies.other()
    assert other.read(marker).keys() == [100, 3, 4]
    second.sql("FLUSH BINARY LOGS")
    purge(second)
    with pytest.raises(PositionPurged) as error:
        other.source.open(marker)
    assert (error.value.first_missing, error.value.last_missing) == behind(second, marker)


def behind(server: DatabaseServer, marker: Datamarker) -> tuple[str, str]:
    """First and last of what a server purged and a datamarker has not, as the server says."""
    if server.flavour == "mysql":
        ((gone,),) = server.sql(f"SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, '{marker.delivered}')")
        gone = str(gone).replace("\n", "")
        return gone, gone
    last = str(server.sql("SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
    number = int(marker.delivered.rpartition("-")[2])
    return f"0-1-{number + 1},9-2-1", last


# --- MySQL -----------------------------------------------------------------------------------------------------------


@_MYSQL
def test_dbz_1200_tags(copies: Copies) -> None:
    """A tag is a sequence of its own: what is delivered, lacking and missing counts by it."""
    first, second = copies.first, copies.second
    first.sql("SET gtid_next = 'AUTOMATIC:one'", "INSERT INTO shop.t VALUES (1, 'row 1')")
    insert(first, 2)
    before = copies.one.read(copies.start)
    marker = before.markers[-1]
    assert marker.delivered == executed(first)
    copies.catch_up()
    promote(second)
    first.sql("SET gtid_next = 'AUTOMATIC:one'", "INSERT INTO shop.t VALUES (3, 'row 3')")
    first.sql("SET gtid_next = 'AUTOMATIC:two'", "INSERT INTO shop.t VALUES (4, 'row 4')")
    later = copies.one.read(marker)
    ((uuid,),) = first.sql("SELECT @@GLOBAL.server_uuid")
    assert lacking(second, later.markers[-1]) == f"{uuid}:one:2:two:1"
    second.sql("START REPLICA")
    insert(first, 5)
    copies.catch_up()
    other = copies.other()
    read = other.read(marker)
    assert values(before) + values(read) == rows(second)
    assert updates(read)[:2] == updates(later)
    assert read.markers[-1].delivered == executed(second)
    assert other.read(later.markers[-1]).keys() == [5]


@_MYSQL
def test_gtid_sets_with_holes(copies: Copies) -> None:
    """The servers have the same transactions in another order, so that what is delivered of one is no interval."""
    first, second = copies.first, copies.second
    insert(first, 0)
    copies.catch_up()
    promote(second)
    insert(first, 1)
    one = copies.one.read(copies.start).markers[-1]
    insert(first, 2)
    two = copies.one.read(one)
    gtid = two.ids()[0].rpartition(":")[0]
    number = gtid.rpartition(":")[2]
    second.sql(f"SET gtid_next = '{gtid}'", "INSERT INTO shop.t VALUES (2, 'row 2')")
    with_hole = executed(second)
    assert f"-{int(number) - 2}:{number}" in with_hole
    second.sql("FLUSH BINARY LOGS", "START REPLICA")
    copies.catch_up()
    second.sql("FLUSH BINARY LOGS")
    insert(first, 3)
    copies.catch_up()
    other = copies.other()
    read = other.read(one)
    assert read.keys() == [2, 3]
    assert read.markers[-1].delivered == executed(second)
    assert other.read(two.markers[-1]).keys() == [3]
    # And back, where the two have the other order.
    other.stop()
    assert copies.back().read(replace(one, delivered=with_hole)).keys() == [1, 3]


@_MYSQL
def test_dbz_a_source_that_the_copy_never_had(copies: Copies) -> None:
    """Nothing is left out by itself. An operator who knows that nothing is missing goes on without that server."""
    insert(copies.first, 1)
    marker = copies.one.read(copies.start).markers[-1]
    retired = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-7"
    insert(copies.first, 2)
    copies.catch_up()
    other = copies.other()
    of_before = replace(marker, delivered=f"{retired},{marker.delivered}")
    assert lacking(copies.second, of_before) == retired
    with pytest.raises(Diverged, match=f"not executed {retired}, which was delivered") as error:
        other.source.open(of_before)
    assert (error.value.first_missing, error.value.last_missing) == (retired, retired)
    assert other.read(other.source.locate(marker.delivered)).keys() == [2]


@pytest.mark.parametrize("flavour", ["mysql"])
def test_maxwell_gtids_that_are_switched_on(new_server: NewServer, tail: Tails) -> None:
    """A datamarker from before has none. What was committed without one before the copy takes over is not passed."""
    steps = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
    first, second = (new_server(gtid_mode="OFF", enforce_gtid_consistency="ON", **options) for options in ({}, REPLICA))
    copies = Copies(first, second, tail)
    insert(first, 1)
    marker = copies.one.read(copies.start).markers[-1]
    assert marker.delivered == ""
    insert(first, 2)
    second.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v TEXT)")
    insert(second, 1, 2)
    for mode in steps:
        for server in (first, second):
            server.sql(f"SET GLOBAL gtid_mode = {mode}")
    insert(first, 3)
    with pytest.raises(UnsupportedLog, match="Cannot replicate anonymous transaction") as error:
        copies.one.read(marker)
    assert "gtid_mode = ON_PERMISSIVE" in str(error.value.hint)
    first.sql("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    read = copies.one.read(marker)
    assert read.keys() == [2, 3]
    first.sql("SET GLOBAL gtid_mode = ON")
    replicate(first, second)
    insert(first, 4)
    copies.catch_up()
    other = copies.other()
    assert other.read(read.markers[-1]).keys() == [4]
    # The copy has row 2 as well, and nothing leads there: the flow is held, and goes on where the copy's log begins.
    with pytest.raises(PositionPurged, match="behind a transaction without a GTID") as lost:
        other.source.open(marker)
    assert (lost.value.first_missing, lost.value.last_missing) == (str(marker.order), f"{marker.order.incarnation}/1/4")
    other.stop()
    # Nor do purged transactions without GTIDs leave a trace on their own server.
    purge(first)
    with pytest.raises(PositionPurged, match="behind a transaction without a GTID"):
        copies.back().source.open(marker)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

_TABLE = "CREATE TABLE t (k int PRIMARY KEY, v text)"


@pytest.fixture
def primary(new_postgres: NewPostgres) -> PostgresServer:
    server = new_postgres(max_prepared_transactions="10")
    prepare_database(server, "shop", _TABLE)
    return server


@pytest.fixture
def standby(primary: PostgresServer, tmp_path: Path) -> Iterator[Standby]:
    made = Standby(primary, tmp_path, max_prepared_transactions="10")
    yield made
    made.server.close()


def test_dbz_76_transactions_that_are_open_at_the_promotion(
    primary: PostgresServer, standby: Standby, tmp_path: Path
) -> None:
    """One began before the datamarker and is committed behind it, one is prepared on the old primary and committed on
    the new one, and one is rolled back there."""
    shared = HostsState()
    one = source_of(primary, "shop", tmp_path / "a", shared=shared)
    start = one.latest()
    with primary.connect("shop", autocommit=False) as long:
        long.execute("INSERT INTO t SELECT n, 'long' FROM generate_series(1, 5) n")
        for name, key in ("kept", 20), ("undone", 21):
            prepared = f"INSERT INTO t VALUES ({key}, '{name}')"
            primary.sql("BEGIN", prepared, f"PREPARE TRANSACTION '{name}'", database="shop")
        primary.sql("INSERT INTO t VALUES (90, 'short')", database="shop")
        before = read_log(one, start)
        assert before.keys() == [90]
        long.execute("INSERT INTO t SELECT n, 'long' FROM generate_series(6, 10) n")
        long.commit()
    one.stop()
    standby.catch_up()
    standby.take_over()
    server = standby.server
    server.sql("COMMIT PREPARED 'kept'", "ROLLBACK PREPARED 'undone'", database="shop")
    server.sql("INSERT INTO t VALUES (91, 'after')", database="shop")
    other = source_of(server, "shop", tmp_path / "b", shared=shared)
    try:
        read = read_until(other.open(before.markers[-1]), other.latest().order)
    finally:
        other.stop()
    assert read.keys() == [*range(1, 11), 20, 91]
    assert sorted(values(before) + values(read)) == server.sql("SELECT k, v FROM t ORDER BY k", database="shop")


def test_a_standby_that_is_promoted_after_another_one(
    primary: PostgresServer, standby: Standby, tmp_path: Path
) -> None:
    """The datamarker is of the first timeline, and the log goes through a second one that nobody read."""
    shared = HostsState()
    one = source_of(primary, "shop", tmp_path / "a", shared=shared)
    start = one.latest()
    primary.sql("INSERT INTO t VALUES (1, 'one')", database="shop")
    marker = read_log(one, start).markers[-1]
    one.stop()
    primary.sql("INSERT INTO t VALUES (2, 'one')", database="shop")
    standby.catch_up()
    standby.take_over()
    server = standby.server
    server.sql("INSERT INTO t VALUES (3, 'two')", database="shop")
    server.stop()
    (server.data / "standby.signal").touch()
    server.options["primary_conninfo"] = ""
    server.start()
    server.sql("SELECT pg_promote()")
    server.sql("INSERT INTO t VALUES (4, 'three')", database="shop")
    other = source_of(server, "shop", tmp_path / "b", shared=shared)
    try:
        read = read_until(other.open(marker), other.latest().order)
        assert read.keys() == [2, 3, 4]
        assert [one.split(":")[1] for one in read.ids()] == ["1", "2", "3"]
        assert read_log(other, read.markers[-1]).keys() == []
    finally:
        other.stop()
