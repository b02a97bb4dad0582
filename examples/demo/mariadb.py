"""A private MariaDB server, from whatever MariaDB this machine has installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import ClassVar, Final

from examples.demo.database_server import DatabaseServer, as_root
from wormhole.model.errors import ConfigError

__all__ = ["MariaDbServer"]

# Debian keeps the server where only root's PATH leads.
_PLACES: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


class MariaDbServer(DatabaseServer):
    """One MariaDB server on ``127.0.0.1``."""

    flavour: ClassVar[str] = "mariadb"
    rights: ClassVar[str] = "REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR, SELECT"
    defaults: ClassVar[Mapping[str, str | None]] = {"innodb-log-file-size": "32M", "innodb-fast-shutdown": "1"}

    def server_command(self) -> list[str]:
        return [_found("mariadbd")]

    def program(self, name: str) -> list[str]:
        return [_found("mariadb" if name == "client" else f"mariadb-{name}")]

    def initialise(self) -> list[str]:
        return [
            _found("mariadb-install-db"),
            "--no-defaults",
            *as_root(),
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            f"--innodb-log-file-size={self.options['innodb-log-file-size']}",
        ]


def _found(name: str) -> str:
    path = shutil.which(name, path=_PLACES)
    if path is None:
        raise ConfigError(
            f"a private MariaDB needs the program {name}, and it is not there",
            hint="on Debian, as root: apt-get install --no-install-recommends mariadb-server-core mariadb-client",
        )
    return path
