"""A private PgBouncer on loopback, in transaction mode: each transaction may get another session of the server."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg
import pytest

from wormhole.host.private_server import PrivateServer

__all__ = ["PgBouncer"]

_UNPACKED: Final = Path(sys.prefix) / "pgbouncer"
_PATH: Final = os.pathsep.join((str(_UNPACKED / "usr" / "sbin"), os.environ.get("PATH", os.defpath), "/usr/sbin"))
_USER: Final = "nobody"
# Sessions are taken in turns, so that two transactions of one client never have the same one where there are several.
_SETTINGS: Final = """\
[databases]
* = host=127.0.0.1 port={to} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
min_pool_size = 3
server_round_robin = 1
server_login_retry = 1
"""


class PgBouncer(PrivateServer):
    """Stands before the PostgreSQL on the port ``to`` of loopback, and lets everyone in."""

    flavour: ClassVar[str] = "pgbouncer"

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    # -- what a private server needs

    def find_programs(self) -> None:
        if shutil.which("pgbouncer", path=_PATH) is None:
            pytest.skip("there is no PgBouncer on this machine; run: make build")

    def prepare(self) -> None:
        self.folder.chmod(0o755)  # it refuses to run as root

    def start_command(self) -> list[str]:
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(to=self._to, port=self.port))
        settings.chmod(0o644)
        program = shutil.which("pgbouncer", path=_PATH)
        assert program is not None
        return [program, str(settings)]

    def guard_options(self) -> list[str]:
        return ["--user", _USER] if os.geteuid() == 0 else []

    def process_options(self) -> dict[str, Any]:
        libraries = _UNPACKED / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        return {"env": {**os.environ, "LD_LIBRARY_PATH": str(libraries)}}

    def answers(self) -> bool:
        try:
            with psycopg.connect(host=self.host, port=self.port, user="pgbouncer", dbname="pgbouncer", autocommit=True):
                return True
        except psycopg.OperationalError:
            return False
