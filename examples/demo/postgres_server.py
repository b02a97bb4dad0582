"""A private PostgreSQL server on loopback, for the demo and for tests.

PostgreSQL refuses to run as root. For root it is started as the user ``nobody``, which then owns its folder.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg

from wormhole.host.private_server import LOG_TAIL, PrivateServer
from wormhole.model.errors import ConfigError, SourceUnavailable

__all__ = ["ACCOUNTS", "PostgresServer"]

_PLACES: Final = (Path(sys.prefix) / "postgres-server", Path("/"))
"""The places of Debian's server: where ``scripts/prepare.py`` unpacks it, and where Debian installs it."""
_OF_VERSION: Final = f"{sys.prefix}/postgres-{{}}/bin"
"""Where ``scripts/prepare.py`` puts a server of another version, for the tests."""
_OTHER: Final = "WORMHOLE_POSTGRES"
"""Environment variable: the folder of another server, with ``bin``, ``lib`` and ``share`` in it."""
_OLDEST: Final = 15
_USER: Final = "nobody"
_POLL_S: Final = 0.02

# The settings that a publisher needs, with little memory, disk and start-up time. A commit is written to the operating
# system and does not wait for the disk, so it survives `kill -9` of the server.
_OPTIONS: Final[Mapping[str, str]] = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_replication_slots": "30",
    "max_wal_senders": "30",
    "max_connections": "80",
    "shared_buffers": "32MB",
    "min_wal_size": "32MB",
    "fsync": "off",
    "autovacuum": "off",
    "jit": "off",
    "timezone": "UTC",
}
ACCOUNTS: Final = """\
CREATE ROLE {user} LOGIN REPLICATION PASSWORD '{password}';
GRANT pg_read_all_data TO {user};
"""
"""The statements that make the publisher's account."""
_READS_SINCE: Final = 14
_READS_BEFORE: Final = """\
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO {user};
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {user};
"""
"""Before version 14 no role may read every table. These statements permit it in a database and its later copies."""


class PostgresServer(PrivateServer):
    """One server. ``options``: settings over the defaults.

    Its superuser is ``postgres``. ``user`` is the publisher's account: it may replicate and read, and nothing else.
    ``template``: the data folder of another one, stopped in order, to be copied instead of made anew. ``version``: the
    major version, if not that of the server that the machine has. :meth:`stop` waits for no client.
    """

    flavour: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    user: Final = "wormhole"
    password: Final = "a hole"

    def __init__(
        self, *, options: Mapping[str, str] | None = None, template: Path | None = None, version: int | None = None
    ) -> None:
        super().__init__()
        self.options: dict[str, str] = {**_OPTIONS, **(options or {})}
        self._programs = _programs(version)
        self._template = template

    @property
    def password_file(self) -> Path:
        """Holds :attr:`password`, readable by its owner only."""
        return self.folder / "password"

    def url(self, database: str = "postgres") -> str:
        """The source for a configuration. The password is in :attr:`password_file`."""
        return f"postgres://{self.user}@{self.host}:{self.port}/{database}"

    def program(self, name: str) -> list[str]:
        """The words that start one of PostgreSQL's programs, which may need :attr:`environment`."""
        return [str(self._programs / name)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which its programs find their libraries."""
        if self._programs.match("usr/lib/postgresql/*/bin"):
            libraries = self._programs.parents[4] / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        else:
            libraries = self._programs.parent / "lib"
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(libraries)}

    # -- life

    def restart(self, **options: str) -> None:
        """Stop and start, from now on with these options too."""
        self.stop()
        self.options.update(options)
        self.start()

    def own_data(self) -> None:
        """Make the server's user the owner of the data folder, after it was replaced by another one."""
        self._give(self.data)

    # -- talking to it

    def connect(
        self, database: str = "postgres", user: str = "postgres", password: str = "", **more: Any
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection, each statement a transaction unless it begins one; the caller closes it."""
        settings: dict[str, Any] = {"autocommit": True, "connect_timeout": 10, "sslmode": "disable", **more}
        return psycopg.connect(
            host=self.host, port=self.port, dbname=database, user=user, password=password or None, **settings
        )

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run the statements as the superuser, in order, on a connection of their own; returns the rows of the last
        one.
        """
        rows: list[tuple[Any, ...]] = []
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    # -- inside

    def _owner(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        nobody = pwd.getpwnam(_USER)
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _give(self, path: Path) -> None:
        owner = self._owner()
        if owner:
            for one in (path, *path.rglob("*")):
                os.chown(one, owner["user"], owner["group"])

    def _make_data(self) -> None:
        if self._template is not None:
            shutil.copytree(self._template, self.data)
        self._give(self.folder)
        if self._template is not None:
            return
        command = [*self.program("initdb"), "--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256",
                   "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", f"--pgdata={self.data}"]  # fmt: skip
        _run("initdb", command, self.environment, self._owner())
        access = (
            "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nhost replication postgres 127.0.0.1/32 "
            "trust\nhost all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n"
        )
        (self.data / "pg_hba.conf").write_text(access)
        accounts = ACCOUNTS.format(user=self.user, password=self.password)
        if int((self.data / "PG_VERSION").read_text()) >= _READS_SINCE:
            self._alone("postgres", accounts)
            return
        self._alone("postgres", accounts.partition("GRANT")[0])
        for database in ("postgres", "template1"):
            self._alone(database, _READS_BEFORE.format(user=self.user))

    def _alone(self, database: str, statements: str) -> None:
        """Run statements while the server does not."""
        command = [*self.program("postgres"), "--single", "-D", str(self.data), "-j", database]
        _run("making the accounts", command, self.environment, self._owner(), statements.replace("\n", "\n\n"))

    # -- what a private server needs

    def temporary_parent(self) -> Path | None:
        """A folder that the server's user can access."""
        usual = Path(tempfile.gettempdir()).resolve()
        if os.geteuid() or all(one.stat().st_mode & stat.S_IXOTH for one in (usual, *usual.parents)):
            return None
        return Path("/tmp")

    def prepare(self) -> None:
        if not self.data.exists():
            self._make_data()
            self.password_file.touch(0o600)
            self.password_file.write_text(self.password + "\n")

    def start_command(self) -> list[str]:
        places = {
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "external_pid_file": str(self.folder / "pid"),
        }
        settings = [f"--{name}={value}" for name, value in (self.options | places).items()]
        return [*self.program("postgres"), "-D", str(self.data), *settings]

    def guard_options(self) -> list[str]:
        return ["--user", _USER] if os.geteuid() == 0 else []

    def process_options(self) -> dict[str, Any]:
        return {"env": self.environment, "cwd": self.folder}

    def answers(self) -> bool:
        try:
            with self.connect(connect_timeout=2) as connection:  # another program on the port may not answer
                return connection.execute("SHOW data_directory").fetchall() == [(str(self.data),)]
        except psycopg.OperationalError:
            return False

    def launch(self) -> None:
        """Launch the server again while it ends because processes of a killed one still have its memory."""
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            try:
                return super().launch()
            except SourceUnavailable as error:
                if "pre-existing shared memory block" not in str(error) or time.monotonic() > deadline:
                    raise
                self.end_guard()
                time.sleep(_POLL_S)


def _programs(version: int | None) -> Path:
    """The folder of the programs of that version; without one: of the server that ``WORMHOLE_POSTGRES`` names, else of
    the newest one of Debian's.

    Raises :class:`~wormhole.model.errors.ConfigError` without one.
    """
    if version is None and (other := os.environ.get(_OTHER)):
        return Path(other).absolute() / "bin"
    for place in _PLACES:
        found = {
            int(path.parent.name): path
            for path in place.glob("usr/lib/postgresql/*/bin")
            if path.parent.name.isdecimal() and (path / "postgres").exists()
        }
        if version in found:
            return found[version]
        if version is None and found and max(found) >= _OLDEST:
            return found[max(found)]
    if (unpacked := Path(_OF_VERSION.format(version)) / "postgres").exists():
        return unpacked.parent
    raise ConfigError(
        f"there is no PostgreSQL{f' {version}' if version else ''} here",
        hint="run: make build; it prints what it fetches",
    )


def _run(
    what: str, command: list[str], environment: Mapping[str, str], owner: Mapping[str, Any], said: str = ""
) -> None:
    ended = subprocess.run(
        command, check=False, input=said.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
        cwd="/", **owner,
    )  # fmt: skip
    if ended.returncode:
        raise SourceUnavailable(f"{what} failed: {ended.stdout.decode(errors='replace')[-LOG_TAIL:].strip()}")
