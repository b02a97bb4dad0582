"""Two servers, copies of one dataset: one is written to, the other replicates it, and they change places."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import pytest

from datastores.postgres.log import slots
from datastores.postgres.server.versions import FAILOVER_SINCE
from tests.support.databases import DatabaseServer, start_server
from tests.support.eventually import until
from tests.support.fault_proxy import FaultProxy
from tests.support.postgres_harness import drop_slots
from tests.support.postgres_server import PostgresServer
from tests.support.replicas import promote, replicate
from tests.system.harness.datastores import DATABASE, NAME, Postgres, Server

MAIN, WEST = "main", "west"
_IDS: Final = {MAIN: "1", WEST: "2"}
_STANDBY: Final = "standby"
"""The slot over which a standby replicates."""


class WithStandby(Postgres):
    """A PostgreSQL server and its standby, which has no slots before it is promoted."""

    def start(self) -> None:
        super().start()
        settings = self._prepared()
        with tempfile.TemporaryDirectory() as scratch:
            base = Path(scratch, "base")
            self.server.stop()
            shutil.copytree(self.server.data, base)
            self.server.start()
            for slot in (base / "pg_replslot").iterdir():
                shutil.rmtree(slot)
            (base / "standby.signal").touch()
            self.standby = PostgresServer(options=settings, template=base)
            self.standby.start()

    def close(self) -> None:
        if hasattr(self, "standby"):
            self.standby.close()
        super().close()

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "port": self.proxy.port}

    def at(self, copy: str) -> PostgresServer:
        return self.server if copy == MAIN else self.standby

    def promote(self) -> None:
        """``kill -9`` of the primary once the standby has everything, and its promotion."""
        self._await_standby()
        self.server.kill()
        self._promote()

    def make_slots(self) -> None:
        """What an operator does then: the standby had none."""
        self.standby.sql(*slots.create_statements(NAME), database=DATABASE)

    def _prepared(self) -> dict[str, str]:
        """The settings with which the standby replicates; the primary has what it needs for that."""
        return {"primary_conninfo": f"host={self.server.host} port={self.server.port} user=postgres"}

    def _await_standby(self) -> None:
        """Until it has everything."""
        ((end,),) = self.server.sql("SELECT pg_current_wal_flush_lsn()")
        behind = f"SELECT pg_last_wal_replay_lsn() < '{end}'"
        until(lambda: self.standby.sql(behind) == [(False,)], "the standby is behind")

    def _promote(self) -> None:
        """The primary is gone."""
        self.standby.sql("SELECT pg_promote()")
        self.proxy.lead_to(self.standby.host, self.standby.port)
        self.proxy.cut()


class WithSyncedSlots(WithStandby):
    """A PostgreSQL server whose standby gets its slots, which takes version 17; skips with an earlier one.

    ``bounded``: no slot is ahead of the standby (``synchronized_standby_slots``), a setting that the standby has too,
    as configurations are shared. ``link``: what the standby replicates over.
    """

    def __init__(self, *, bounded: bool = True) -> None:
        super().__init__()
        self._bounded = bounded

    def close(self) -> None:
        super().close()
        if hasattr(self, "link"):
            self.link.__exit__(None, None, None)

    def await_synced(self) -> None:
        """Until the standby keeps both slots if it is promoted: a publisher has moved them since it began."""
        synced = "SELECT slot_name FROM pg_replication_slots WHERE synced AND NOT temporary"
        until(lambda: len(self.standby.sql(synced)) == 2, "the slots are not synchronized")

    def confirmed(self) -> int:
        """Up to where the new primary was told that nobody needs its log."""
        held = f"slot_name = '{slots.held_slot(NAME)}'"
        ((place,),) = self.standby.sql(f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE {held}")
        return int(place)

    def fail_over(self) -> float:
        """``kill -9`` of the primary under load, and promotion of the standby, which has everything.

        Returns when it was killed (``time.monotonic()``).
        """
        with contextlib.closing(self.server.connect(DATABASE, autocommit=False)) as connection:
            # Every transaction of the writer counts there: nothing is committed that the standby does not have.
            connection.execute("LOCK TABLE truth.counter IN SHARE MODE")
            self._await_standby()
            self.server.kill()
            killed = time.monotonic()
        self._promote()
        return killed

    def cut_off(self) -> None:
        """Let the standby get nothing any more; it has everything that there is now."""
        self._await_standby()
        self.link.stall()

    def lose_end(self) -> None:
        """``kill -9`` of the primary, and promotion of the standby with what it has."""
        self.server.kill()
        # What waits for an answer of the primary (the slot sync worker) would hold the promotion up.
        self.link.cut()
        self.link.pass_through()
        self._promote()

    def name_no_standby(self) -> None:
        """What an operator does after the promotion: the new primary has none."""
        self.standby.sql("ALTER SYSTEM SET synchronized_standby_slots = ''", "SELECT pg_reload_conf()")

    def _prepared(self) -> dict[str, str]:
        ((version,),) = self.server.sql("SHOW server_version_num")
        if int(version) < FAILOVER_SINCE:
            pytest.skip("this server gives its standbys no logical slots")
        drop_slots(self.server)
        self.server.sql(f"SELECT pg_create_physical_replication_slot('{_STANDBY}')")
        self.server.sql(*slots.create_statements(NAME, int(version)), database=DATABASE)
        if self._bounded:
            self.server.sql(f"ALTER SYSTEM SET synchronized_standby_slots = '{_STANDBY}'")  # as of its next start
        self.link = FaultProxy(self.server.host, self.server.port)
        self.link.__enter__()
        return {
            "primary_conninfo": f"host={self.link.host} port={self.link.port} user=postgres dbname={DATABASE}",
            "primary_slot_name": _STANDBY,
            "hot_standby_feedback": "on",
            "sync_replication_slots": "on",
        }


class Copies(Server):
    """``servers``: by the name of the copy. The writer finds the one that is written to behind ``proxy``.

    ``related``: one replicates the other. ``options``: of both servers.
    """

    def __init__(self, flavour: str = "mariadb", *, related: bool = True, **options: str) -> None:
        super().__init__(flavour)
        self._related, self._options = related, options
        self.servers: dict[str, DatabaseServer] = {}
        self._written = MAIN

    def start(self) -> None:
        for copy, number in _IDS.items():
            options = {"server_id": number, **self._options}
            if self._flavour == "mariadb":
                options["log_slave_updates"] = "ON"  # MySQL does by default
            self.servers[copy] = start_server(self._flavour, **options)
        if self._related:
            replicate(self.servers[MAIN], self.servers[WEST])
        self.server = self.servers[MAIN]
        self.proxy = FaultProxy(self.server.host, self.server.port)
        self.proxy.__enter__()

    def close(self) -> None:
        if hasattr(self, "proxy"):
            self.proxy.__exit__(None, None, None)
        for server in self.servers.values():
            server.close()

    def settings(self) -> dict[str, Any]:
        return {"port": self.proxy.port}

    def at(self, copy: str) -> DatabaseServer:
        return self.servers[copy]

    @property
    def other(self) -> str:
        """The copy that is not written to."""
        return WEST if self._written == MAIN else MAIN

    def fail_over(self) -> float:
        """``kill -9`` of the server that is written to, under load, and promotion of the other one, which has
        everything.

        Returns when it was killed (``time.monotonic()``).
        """
        old, new = self.servers[self._written], self.servers[self.other]
        with contextlib.closing(old.connect()) as connection, connection.cursor() as cursor:
            # As semi-synchronous replication does: nothing is committed that the replica does not have.
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            place = _position(old)
            until(lambda: _position(new) == place, lambda: f"the replica is at {_position(new)}, not at {place}")
            old.kill()
            killed = time.monotonic()
        promote(new)
        new.sql("RESET SLAVE ALL")
        self._written = self.other
        self.proxy.lead_to(new.host, new.port)
        self.proxy.cut()
        return killed

    def rejoin(self) -> None:
        """Start the server that was killed, as a replica of the one that is written to."""
        back, first = self.servers[self.other], self.servers[self._written]
        back.start()
        back.sql(f"SET GLOBAL gtid_slave_pos = '{_position(back)}'")
        replicate(first, back)


def _position(server: DatabaseServer) -> str:
    return str(server.sql("SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
