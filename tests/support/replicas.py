"""A second server that replicates from a first one, until it is promoted."""

from __future__ import annotations

from contextlib import suppress

from tests.support.databases import DatabaseServer
from tests.support.eventually import until

REPLICA = {"server_id": "2", "log_slave_updates": "ON"}


def replicate(first: DatabaseServer, second: DatabaseServer) -> None:
    if first.flavour == "mariadb":
        second.sql(
            f"CHANGE MASTER TO MASTER_HOST='{first.host}', MASTER_PORT={first.port}, MASTER_USER='{first.user}', "
            f"MASTER_PASSWORD='{first.password}', MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )
    else:
        second.sql(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{first.host}', SOURCE_PORT={first.port}, "
            f"SOURCE_USER='{first.user}', SOURCE_PASSWORD='{first.password}', SOURCE_AUTO_POSITION=1, "
            "GET_SOURCE_PUBLIC_KEY=1",
            "START REPLICA",
        )


def promote(server: DatabaseServer) -> None:
    server.sql("STOP SLAVE" if server.flavour == "mariadb" else "STOP REPLICA")


def wait_for_rows(server: DatabaseServer, count: int) -> None:
    def there() -> bool:
        with suppress(Exception):  # there is no such table yet
            return bool(server.sql("SELECT COUNT(*) FROM shop.t")[0][0] == count)
        return False

    until(there, "the replica does not come after")
