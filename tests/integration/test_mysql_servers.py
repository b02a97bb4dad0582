"""The source over real servers that are reset, replaced, stopped, or read by others too."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from datastores.mysql.datastore import DATASTORE
from tests.support.databases import DatabaseServer, NewServer, begin_log, purge
from tests.support.eventually import until
from tests.support.hosts_state import HostsState
from tests.support.replicas import REPLICA, promote, replicate, wait_for_rows
from tests.support.server_tail import Tail
from wormhole.model.errors import Diverged, PositionError, SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Login, Standing
from wormhole.ports.log_source import LogReader
from wormhole.ports.testing.reading import Read, read_until


class TestOtherHistories:
    def test_reset_is_divergence_and_not_taken_for_the_old_log(
        self, own_shop: DatabaseServer, tail: Callable[..., Tail]
    ) -> None:
        one = tail(own_shop)
        start = one.source.latest()
        own_shop.sql("INSERT INTO shop.t VALUES (1)")
        marker = one.read(start).markers[-1]
        time.sleep(
            1.0 - time.time() % 1.0
        )  # a file says in which second it was begun, and these two have the same number
        begin_log(own_shop)
        for n in range(2, 20):
            own_shop.sql(f"INSERT INTO shop.t VALUES ({n})")
        for old in (start, marker):
            with pytest.raises(Diverged) as error:
                one.source.open(old)
            assert error.value.hint
        read = one.read(one.source.earliest())
        assert [u.key[0] for u in read.updates] == list(range(2, 20))
        one.stop()
        again = tail(own_shop)
        for old in (start, marker):
            with pytest.raises(Diverged):
                again.source.open(old)

    def test_a_reader_does_not_wait_in_a_log_that_began_anew(
        self, own_shop: DatabaseServer, tail: Callable[..., Tail]
    ) -> None:
        own_shop.sql("INSERT INTO shop.t VALUES (1)")
        one = tail(own_shop)
        reader = one.source.open(one.source.latest())
        begin_log(own_shop)
        with pytest.raises(SourceUnavailable, match="incarnation"):
            until(lambda: reader.read(1 << 20, 0.2), "the reader waits in the log that was")
        reader.close()

    def test_a_log_that_turns_often_stays_the_same(self, own_shop: DatabaseServer, tail: Callable[..., Tail]) -> None:
        one = tail(own_shop)
        start = one.source.latest()
        reader = one.source.open(start)
        read = Read(last_end=start.order)
        turning = [
            statement for n in range(60) for statement in (f"INSERT INTO shop.t VALUES ({n})", "FLUSH BINARY LOGS")
        ]
        with ThreadPoolExecutor() as pool:
            written = pool.submit(own_shop.sql, *turning)

            def look() -> None:
                while not written.done():
                    one.source.latest()

            looked = [pool.submit(look) for _ in range(2)]
            while len(read.updates) < 60:
                segment = reader.read(1 << 20, 0.2)
                if segment is not None:
                    read.add(segment)
            written.result()
            for done in looked:
                done.result()
        reader.close()
        assert read.keys() == list(range(60))
        assert one.source.latest().order.incarnation == start.order.incarnation
        assert one.read(start).ids() == read.ids()

    def test_failover_to_a_replica_goes_on_by_gtid(
        self, new_server: NewServer, new_shop: NewServer, tail: Callable[..., Tail]
    ) -> None:
        first, second = new_shop(), new_server(**REPLICA)
        replicate(first, second)
        one = tail(first)
        start = one.source.latest()
        for n in range(5):
            first.sql(f"INSERT INTO shop.t VALUES ({n})")
        before = one.read(start)
        marker = before.markers[-1]
        first.sql("INSERT INTO shop.t VALUES (5)")
        wait_for_rows(second, 6)
        one.stop()
        first.stop()
        promote(second)
        second.sql("INSERT INTO shop.t VALUES (6)")
        other = tail(second)
        assert other.source.latest().order.incarnation == marker.order.incarnation + 1
        after = other.read(marker)
        assert [u.key[0] for u in after.updates] == [5, 6]
        # From then on by place again, with an anchor.
        assert other.read(after.markers[-1]).updates == []
        assert after.markers[-1].anchor is not None

    def test_a_replica_that_lags_is_divergence(
        self, new_server: NewServer, new_shop: NewServer, tail: Callable[..., Tail]
    ) -> None:
        first, second = new_shop(), new_server(**REPLICA)
        replicate(first, second)
        first.sql("INSERT INTO shop.t VALUES (1)")
        wait_for_rows(second, 1)
        promote(second)
        one = tail(first)
        start = one.source.latest()
        first.sql("INSERT INTO shop.t VALUES (2)")
        marker = one.read(start).markers[-1]
        one.stop()
        other = tail(second)
        with pytest.raises(Diverged, match="not executed"):
            other.source.open(marker)

    def test_all_delivered_before_the_purge_is_no_loss(
        self, own_shop: DatabaseServer, tail: Callable[..., Tail]
    ) -> None:
        own_shop.sql("INSERT INTO shop.t VALUES (1)")
        one = tail(own_shop)
        marker = one.source.latest()
        own_shop.sql("FLUSH BINARY LOGS")
        purge(own_shop)
        own_shop.sql("INSERT INTO shop.t VALUES (2)")
        assert [u.key[0] for u in one.read(marker).updates] == [2]


class TestHosts:
    """Publishers of several hosts, of which one owns the log at a time: each has a state folder of its own."""

    def test_another_host_goes_on_at_the_same_server_by_place(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        """Although the readers of the one before are still there: its host died, and the server has not noticed."""
        shared = HostsState()
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server, state="a", shared=shared, server_ids="4301-4302")
        start = one.source.latest()
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        marker = one.read(start).markers[-1]
        left = one.source.open(marker)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (2)")
        other = tail(database_server, state="b", shared=shared, server_ids="4301-4302")
        read = other.read(marker)
        assert read.keys() == [2]
        assert read.markers[-1].order.incarnation == marker.order.incarnation
        assert not other.source.status().problems
        left.close()
        one.stop()
        again = tail(database_server, state="a", shared=shared, server_ids="4301-4302")
        assert again.read(read.markers[-1]).keys() == []
        assert not (again.state / "mysql" / "histories.json").exists()

    def test_there_and_back_over_two_copies(
        self, new_server: NewServer, new_shop: NewServer, tail: Callable[..., Tail]
    ) -> None:
        first, second, shared = new_shop(log_slave_updates="ON"), new_server(**REPLICA), HostsState()
        replicate(first, second)
        one = tail(first, state="a", shared=shared)
        start = one.source.latest()
        first.sql("INSERT INTO shop.t VALUES (1)")
        marker = one.read(start).markers[-1]
        one.stop()
        wait_for_rows(second, 1)
        assert standing(second, marker).lacking == ""
        promote(second)
        second.sql("INSERT INTO shop.t VALUES (2)")
        other = tail(second, state="b", shared=shared)
        there = other.read(marker)
        assert there.keys() == [2]
        before, marker = marker, there.markers[-1]
        assert marker.order.incarnation == start.order.incarnation + 1
        other.stop()
        # The first copy lacks what was delivered from the second, and says so before it is served and when it is.
        lacking = standing(first, marker).lacking
        assert lacking
        back = tail(first, state="a", shared=shared)
        with pytest.raises(Diverged, match="not executed") as error:
            back.source.open(marker)
        assert lacking in str(error.value)
        back.stop()
        if first.flavour == "mariadb":
            first.sql(f"SET GLOBAL gtid_slave_pos = '{before.delivered}'")
        replicate(second, first)
        wait_for_rows(first, 2)
        promote(first)
        assert standing(first, marker).lacking == ""
        first.sql("INSERT INTO shop.t VALUES (3)")
        back = tail(first, state="b", shared=shared)
        after = back.read(marker)
        assert after.keys() == [3]
        assert back.read(after.markers[-1]).keys() == []

    def test_what_a_server_can_do_for_a_log(self, database_server: DatabaseServer, tail: Callable[..., Tail]) -> None:
        marker = tail(database_server).source.latest()
        found = standing(database_server, marker)
        assert found == Standing(found.server)
        assert found.server
        other = "77-88-99" if database_server.flavour == "mariadb" else "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:7"
        login = Login(database_server.password_file)
        found = DATASTORE.standing(database_server.url, login, [marker.delivered, other], failover=True)
        assert (found.ready, found.lacking) == (True, other)


def standing(server: DatabaseServer, marker: Datamarker) -> Standing:
    return DATASTORE.standing(server.url, Login(server.password_file), [marker.delivered], failover=True)


class TestConnections:
    def test_a_killed_dump_is_retryable_and_nothing_is_lost(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        start = one.source.latest()
        reader = one.source.open(start)
        read = Read(last_end=start.order)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        read_until(reader, one.source.latest().order, into=read)
        for number, *_ in database_server.sql(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"
        ):
            database_server.sql(f"KILL {number}")
        database_server.sql(f"INSERT INTO {shop}.t VALUES (2)")
        with pytest.raises(SourceUnavailable):
            read_until(reader, one.source.latest().order, into=read)
        reader.close()
        assert [u.key[0] for u in one.read(read.markers[-1]).updates] == [2]

    def test_the_server_may_go_and_come_back(self, own_shop: DatabaseServer, tail: Callable[..., Tail]) -> None:
        one = tail(own_shop)
        start = one.source.latest()
        own_shop.sql("INSERT INTO shop.t VALUES (1)")
        marker = one.read(start).markers[-1]
        own_shop.kill()
        with pytest.raises(SourceUnavailable):
            one.source.open(marker)
        with pytest.raises(SourceUnavailable):
            one.source.latest()
        own_shop.start()
        own_shop.sql("INSERT INTO shop.t VALUES (2)")
        assert [u.key[0] for u in one.read(marker).updates] == [2]

    def test_one_id_per_reader(self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]) -> None:
        one = tail(database_server, server_ids="4101-4102")
        start = one.source.latest()
        readers: list[LogReader] = [one.source.open(start), one.source.open(start)]
        with pytest.raises(SourceUnavailable, match="4101-4102"):
            one.source.open(start)
        readers.pop().close()
        readers.append(one.source.open(start))
        for reader in readers:
            reader.close()


class TestAnotherReader:
    """Two publishers of one log in the static form, each with a state folder of its own and the same ``server_ids``."""

    def test_is_not_thrown_out_and_is_named(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one, other = (tail(database_server, state=name, server_ids="4201-4202") for name in ("one", "other"))
        start = one.source.latest()
        readers = [one.source.open(start), one.source.open(start)]
        with pytest.raises(SourceUnavailable, match=r"4201: connection \d+ \(wormhole@127.0.0.1") as error:
            other.source.open(start)
        assert "stop one of the two publishers" in str(error.value.hint)
        assert "server_ids" in str(error.value.hint)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        for reader in readers:  # on MariaDB a dump with the same id would have ended theirs
            assert len(read_until(reader, one.source.latest().order).updates) == 1

        def problems() -> list[str]:
            return [text for text in map(str, other.source.status().problems) if "4202: connection" in text]

        until(problems, "the second publisher names the first one")
        assert not one.source.status().problems
        one.stop()
        until(lambda: not problems(), "the first one is gone")
        assert [u.key[0] for u in other.read(start).updates] == [1]

    def test_leaves_the_other_ids_of_the_range(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one, other = (tail(database_server, state=name, server_ids="4211-4212") for name in ("one", "other"))
        start = one.source.latest()
        readers = [one.source.open(start), other.source.open(start)]
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)", f"INSERT INTO {shop}.t VALUES (1)")
        end = one.source.latest().order
        assert [len(read_until(reader, end).updates) for reader in readers] == [1, 1]
        until(lambda: "4211: connection" in str(other.source.status().problems), "the second publisher names the first")
        for reader in readers:
            reader.close()

    def test_a_replica_of_the_server_keeps_its_id(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        primary, replica = new_server(), new_server(server_id="4221")
        if primary.flavour == "mariadb":  # else the account may not see it: docs/mysql.md
            primary.sql(f"GRANT REPLICATION MASTER ADMIN ON *.* TO '{primary.user}'@'{primary.host}'")
        replicate(primary, replica)
        one = tail(primary, server_ids="4221-4221")

        def refused() -> str:
            try:
                one.source.open(one.source.latest()).close()
            except SourceUnavailable as error:
                return str(error)
            return ""

        until(lambda: "4221: registered as" in refused(), "the replica is seen")


class TestStart:
    def test_from_what_a_dump_records(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        marker = one.source.latest()
        name = database_server.binlogs[-1].name
        database_server.sql(f"INSERT INTO {shop}.t VALUES (2)")
        for text in (marker.delivered, f"{name}:{marker.order.offset}", f" {marker.delivered}\n", str(marker.order)):
            found = one.source.locate(text)
            assert found.order == marker.order, text
            assert [u.key[0] for u in one.read(found).updates] == [2]

    @pytest.mark.parametrize(
        "text", ["0-99-1", "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1", "other.000001:4", "binlog.999999:4", "binlog.x:4"]
    )
    def test_what_is_not_there(self, database_server: DatabaseServer, tail: Callable[..., Tail], text: str) -> None:
        one = tail(database_server)
        with pytest.raises(PositionError) as error:
            one.source.locate(text)
        assert error.value.hint
