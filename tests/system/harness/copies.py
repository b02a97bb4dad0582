"""Two servers, copies of one dataset: one is written to, the other replicates it, and they change places."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

from tests.support.databases import DatabaseServer, start_server
from tests.support.eventually import until
from tests.support.fault_proxy import FaultProxy
from tests.support.replicas import promote, replicate
from tests.system.harness.datastores import Server

MAIN, WEST = "main", "west"
_IDS: Final = {MAIN: "1", WEST: "2"}


class Copies(Server):
    """``servers``: by the name of the copy. The writer finds the one that is written to behind ``proxy``.

    One replicates the other.
    """

    def __init__(self, flavour: str = "mariadb") -> None:
        super().__init__(flavour)
        self.servers: dict[str, DatabaseServer] = {}
        self._written = MAIN

    def start(self) -> None:
        for copy, number in _IDS.items():
            options = {"server_id": number}
            if self._flavour == "mariadb":
                options["log_slave_updates"] = "ON"  # MySQL does by default
            self.servers[copy] = start_server(self._flavour, **options)
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
