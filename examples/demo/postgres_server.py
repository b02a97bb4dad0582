"""A private PostgreSQL server on loopback, which dies with its owner (:mod:`wormhole.host.process_guard`).

The demo plays on one, and the tests have theirs. PostgreSQL refuses to run as root. Root runs it as the user
``nobody``, who then owns its folder.
"""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from wormhole.host import process_guard
from wormhole.model.errors import ConfigError, SourceUnavailable

__all__ = ["ACCOUNTS", "PostgresServer"]

_PLACES: Final = (Path(sys.prefix) / "postgres-server", Path("/"))
"""Where Debian's server may be: what ``scripts/prepare.py`` unpacked, and what Debian installed."""
_OF_VERSION: Final = f"{sys.prefix}/postgres-{{}}/bin"
"""Where ``scripts/prepare.py`` puts a server of another version, for the tests."""
_OTHER: Final = "WORMHOLE_POSTGRES"
"""Environment variable: the folder of another server, with ``bin``, ``lib`` and ``share`` in it."""
_OLDEST: Final = 15
_USER: Final = "nobody"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02
_PORTS_TO_TRY: Final = 5
_LOG_TAIL: Final = 2000

# What a publisher needs, and as little memory, disk and start-up time as that leaves. A commit is handed to the
# operating system and not awaited on the disk: that survives `kill -9` of the server.
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
"""What makes the publisher's account."""
_READS_SINCE: Final = 14
_READS_BEFORE: Final = """\
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO {user};
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {user};
"""
"""Before version 14 an account cannot read everything: this is for each database, and for those made from it."""


class PostgresServer:
    """One server. ``options``: settings over the defaults.

    Its superuser is ``postgres``. ``user`` is the publisher's account: it may replicate and read, and nothing else.
    ``template``: the data folder of another one, stopped in order, to be copied instead of made anew. ``version``: the
    major version, if not that of the server that the machine has. :meth:`start` after :meth:`stop` or :meth:`kill` goes
    on with the same port and data. Usable as a context manager; the methods block for up to some seconds.
    """

    host: Final = "127.0.0.1"
    user: Final = "wormhole"
    password: Final = "a hole"

    def __init__(
        self, *, options: Mapping[str, str] | None = None, template: Path | None = None, version: int | None = None
    ) -> None:
        self.options: dict[str, str] = {**_OPTIONS, **(options or {})}
        self.port = 0
        self.pid = 0
        self._programs = _programs(version)
        self._template = template
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}:{self.port} {f'pid {self.pid}' if self.pid else 'stopped'}>"

    @property
    def folder(self) -> Path:
        """Where everything of it is; once started."""
        assert self._folder is not None, "never started, or closed"
        return self._folder

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    @property
    def password_file(self) -> Path:
        """Holds :attr:`password`, readable by its owner only."""
        return self.folder / "password"

    def url(self, database: str = "postgres") -> str:
        """What a configuration names as source; the password is in :attr:`password_file`."""
        return f"postgres://{self.user}@{self.host}:{self.port}/{database}"

    def program(self, name: str) -> list[str]:
        """The words that start one of PostgreSQL's programs, which may need :attr:`environment`."""
        return [str(self._programs / name)]

    @property
    def environment(self) -> dict[str, str]:
        """With which its programs find their libraries."""
        if self._programs.match("usr/lib/postgresql/*/bin"):
            libraries = self._programs.parents[4] / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        else:
            libraries = self._programs.parent / "lib"
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(libraries)}

    # -- life

    def start(self) -> None:
        """Start the server and wait until it answers; nothing when it runs.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` with the end of its log when it does not come up.
        """
        if self._guard is not None:
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="wormhole-postgres-", dir=_reachable()))
            self._make_data()
            self.password_file.touch(0o600)
            self.password_file.write_text(self.password + "\n")
        fixed = self.port
        for _ in range(1 if fixed else _PORTS_TO_TRY):
            self.port = fixed or _free_port()
            try:
                self._come_up()
                return
            except _PortTakenError:
                self._end_guard()
            except BaseException:
                self._end_guard()
                self.port = fixed
                raise
        raise SourceUnavailable(f"the private PostgreSQL cannot listen on port {self.port}: it is taken")

    def stop(self) -> None:
        """Shut the server down in order, and wait for no client; its data stays. Idempotent."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as ``kill -9`` does, and everything that it started; its data stays. Idempotent."""
        self._end(signal.SIGKILL)

    def restart(self, **options: str) -> None:
        """Stop and start, from now on with these options too."""
        self.stop()
        self.options.update(options)
        self.start()

    def close(self) -> None:
        """End the server at once and remove its folder. Idempotent."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def own_data(self) -> None:
        """Give the data folder, which was put in place of another one, to the server's user."""
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

    def _come_up(self) -> None:
        """Launch the server, as often as it ends because processes of a killed one still have its memory."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            self._launch()
            try:
                return self._await_ready()
            except _MemoryInUseError:
                self._end_guard()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def _launch(self) -> None:
        places = {
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "external_pid_file": str(self.folder / "pid"),
        }
        settings = [f"--{name}={value}" for name, value in (self.options | places).items()]
        guard = [sys.executable, "-I", "-S", process_guard.__file__]
        if os.geteuid() == 0:
            guard += ["--user", _USER]
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            self._guard = subprocess.Popen(
                [
                    *guard,
                    str(os.getpid()),
                    str(self.folder),
                    *self.program("postgres"),
                    "-D",
                    str(self.data),
                    *settings,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline() or 0)

    def _await_ready(self) -> None:
        assert self._guard is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            ended = self._guard.poll() is not None
            said = self.log.read_text(errors="replace")
            if ended and "Address already in use" in said:
                raise _PortTakenError
            if ended or time.monotonic() > deadline:
                what = "ended at once" if ended else f"did not answer within {_START_TIMEOUT_S:.0f} s"
                kind = _MemoryInUseError if ended and "pre-existing shared memory block" in said else SourceUnavailable
                raise kind(f"the private PostgreSQL {what}; its log ends: {said[-_LOG_TAIL:].strip()}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        """Whether *our* server serves: another one on the same port has another data folder."""
        try:
            return bool(self.sql("SHOW data_directory")[0][0] == str(self.data))
        except psycopg.OperationalError:
            return False

    def _end(self, number: signal.Signals) -> None:
        if self._guard is not None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(_STOP_TIMEOUT_S)
        self._end_guard()

    def _end_guard(self) -> None:
        guard, self._guard, self.pid = self._guard, None, 0
        if guard is None:
            return
        if guard.poll() is None:
            guard.kill()  # PR_SET_PDEATHSIG takes the server along
            guard.wait()
        if guard.stdout is not None:
            guard.stdout.close()


class _PortTakenError(Exception):
    """Somebody else got the port between our choosing it and the server's binding it."""


class _MemoryInUseError(SourceUnavailable):
    """Processes that a killed server started have not ended yet."""


def _reachable() -> str | None:
    """A folder for temporary files that the server's user gets to; ``None``: the usual one is."""
    usual = Path(tempfile.gettempdir()).resolve()
    if os.geteuid() or all(one.stat().st_mode & stat.S_IXOTH for one in (usual, *usual.parents)):
        return None
    return "/tmp"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
        hint="run: make build; it says what it fetches",
    )


def _run(
    what: str, command: list[str], environment: Mapping[str, str], owner: Mapping[str, Any], said: str = ""
) -> None:
    ended = subprocess.run(
        command, check=False, input=said.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
        cwd="/", **owner,
    )  # fmt: skip
    if ended.returncode:
        raise SourceUnavailable(f"{what} failed: {ended.stdout.decode(errors='replace')[-_LOG_TAIL:].strip()}")
