"""A private MySQL server, in the folder where ``scripts/prepare.py`` has put one of Debian's unstable suite.

Its libraries are newer than this machine's, so it runs with that folder as its root; that takes the rights of root.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from examples.demo.database_server import DatabaseServer, as_root
from wormhole.model.errors import ConfigError

# In the environment, which a copy of the tree borrows.
_ROOT: Final = Path(sys.prefix) / "mysql-server"
_AT_INITIALISATION: Final = ("innodb-redo-log-capacity", "secure-file-priv", "lower-case-table-names")


class MySqlServer(DatabaseServer):
    """One MySQL server on ``127.0.0.1``; always in a private folder, which lies inside its root."""

    flavour: ClassVar[str] = "mysql"
    rights: ClassVar[str] = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"
    defaults: ClassVar[Mapping[str, str | None]] = {
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "innodb-redo-log-capacity": "64M",
        "mysqlx": "OFF",
        "secure-file-priv": "NULL",
    }

    def server_command(self) -> list[str]:
        return self._within("/usr/sbin/mysqld")

    def program(self, name: str) -> list[str]:
        return self._within("/usr/bin/mysql" if name == "client" else f"/usr/bin/mysql{name}")

    def initialise(self) -> list[str]:
        own = [f"--{name}={value}" for name, value in self.options.items() if name in _AT_INITIALISATION]
        return [*self.server_command(), "--no-defaults", *as_root(), "--initialize-insecure", *own,
                f"--datadir={self.seen(self.data)}"]  # fmt: skip

    def temporary_parent(self) -> Path | None:
        return _ROOT / "tmp"

    def seen(self, path: Path) -> str:
        return f"/{path.relative_to(_ROOT)}"

    @staticmethod
    def _within(program: str) -> list[str]:
        if os.geteuid() != 0 or (chroot := shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin")) is None:
            raise ConfigError("a private MySQL runs with a folder of its own as root, which only root may arrange")
        if not (_ROOT / program.lstrip("/")).exists():
            raise ConfigError(f"there is no MySQL in {_ROOT}", hint="run as root: make build; it says what it fetches")
        return [chroot, str(_ROOT), program]
