"""A private database server of the MySQL kind, on loopback only: what its flavours share.

It lives in one folder, listens on ``127.0.0.1`` and a socket in that folder, reads no option file of the machine, and
dies with its owner (:mod:`wormhole.host.process_guard`), also when the owner is killed. :mod:`.mariadb` is the one that
the demo plays on; the tests have a second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import pymysql
from pymysql.connections import Connection

from wormhole.host import process_guard
from wormhole.model.errors import SourceUnavailable

__all__ = ["DatabaseServer", "Row", "as_root", "run"]

Row = tuple[Any, ...]

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02
_PORTS_TO_TRY: Final = 5
_LOG_TAIL: Final = 2000

# Two accounts: one that may do everything, and the one that the publisher uses, with no more than its documented
# rights.
_USERS: Final = """\
SET SESSION sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT {rights} ON *.* TO '{user}'@'127.0.0.1';
"""

# What the publisher needs to find, and as little memory, disk and start-up time as that leaves. A commit is handed to
# the operating system and not awaited on the disk: that survives `kill -9` of the server, and the machine's end takes
# the folder along.
_OPTIONS: Final[Mapping[str, str | None]] = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": None,
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "64M",
    "max-allowed-packet": "64M",
    "character-set-server": "utf8mb4",
    "performance-schema": "OFF",
}


class _PortTakenError(Exception):
    """Somebody else got the port between our choosing it and the server's binding it."""


class DatabaseServer(ABC):
    """One server. ``options``: of the server, without dashes in front, over the defaults; ``None`` for one without a
    value.

    Without ``folder`` it lives in a private temporary folder that goes with it; a given folder is made if need be, and
    its data stays, but ``remove``, a folder around it, goes when the owner is killed. ``template``: the data folder of
    another one, stopped in order, to be copied instead of made anew. :meth:`start` after :meth:`stop` or :meth:`kill`
    goes on with the same port and data. Usable as a context manager; the methods block for up to some seconds. Linux
    only (pidfd).
    """

    flavour: ClassVar[str]
    """``mysql`` or ``mariadb``; also the scheme of :attr:`url`."""
    rights: ClassVar[str]
    """What the publisher's account is granted."""
    defaults: ClassVar[Mapping[str, str | None]]
    """The flavour's own options."""

    host: Final = "127.0.0.1"
    user: Final = "wormhole"
    password: Final = "a hole"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        options: Mapping[str, str | None] | None = None,
        template: Path | None = None,
        remove: str = "",
    ) -> None:
        self.options: dict[str, str | None] = {**_OPTIONS, **self.defaults, **(options or {})}
        self.port = 0
        self.pid = 0
        self._given = folder.absolute() if folder is not None else None
        self._folder: Path | None = None
        self._template = template
        self._remove = remove
        self._guard: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.pid else "stopped"
        return f"<{type(self).__name__} {self.host}:{self.port} {state}>"

    # -- what a flavour says

    @abstractmethod
    def server_command(self) -> list[str]:
        """The words that start the server, up to its options."""

    @abstractmethod
    def initialise(self) -> list[str]:
        """The command that makes :attr:`data` anew."""

    @abstractmethod
    def program(self, name: str) -> list[str]:
        """The words that start ``dump``, ``binlog`` or ``client``, up to the options."""

    def temporary_parent(self) -> Path | None:
        """Where a private folder has to be; ``None``: anywhere."""
        return None

    def seen(self, path: Path) -> str:
        """A path as the server sees it."""
        return str(path)

    # -- where it is

    @property
    def folder(self) -> Path:
        """Where everything of it is; once started."""
        assert self._folder is not None, "never started, or closed"
        return self._folder

    @property
    def data(self) -> Path:
        """Its data folder, which also holds the binlogs."""
        return self.folder / "data"

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "s"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    @property
    def url(self) -> str:
        """What a configuration names as source; the password is in :attr:`password_file`."""
        return f"{self.flavour}://{self.user}@{self.host}:{self.port}/"

    @property
    def password_file(self) -> Path:
        """Holds :attr:`password`, readable by its owner only."""
        return self.folder / "password"

    @property
    def version(self) -> str:
        """As the program tells it, with its own name. It need not run."""
        return subprocess.run(
            [*self.server_command(), "--version"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    @property
    def binlogs(self) -> list[Path]:
        """The binlog files that the server knows, oldest first."""
        return [self.data / str(name) for name, *_ in self.sql("SHOW BINARY LOGS")]

    # -- life

    def start(self) -> None:
        """Start the server and wait until it answers; nothing when it runs.

        Raises :class:`~wormhole.model.errors.ConfigError` when there is no such server on this machine, and
        :class:`~wormhole.model.errors.SourceUnavailable` with the end of its log when it does not come up.
        """
        if self._guard is not None:
            return
        command = self.server_command()
        if self._folder is None:
            self._folder = self._given or Path(
                tempfile.mkdtemp(prefix=f"wormhole-{self.flavour}-", dir=self.temporary_parent())
            )
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        if not self.data.exists():
            self._make_data()
        if not self.password_file.exists():
            self.password_file.touch(0o600)
            self.password_file.write_text(self.password + "\n")
        fixed = self.port
        for _ in range(1 if fixed else _PORTS_TO_TRY):
            self.port = fixed or _free_port()
            try:
                self._launch(command)
                return
            except _PortTakenError:
                self._end_guard()
            except BaseException:
                self._end_guard()
                self.port = fixed
                raise
        port, self.port = self.port, fixed
        raise SourceUnavailable(
            f"the private {self.flavour} server cannot listen on {self.host}:{port}: the port is taken",
            hint="end the program that listens there, or start again to get another port",
        )

    def stop(self) -> None:
        """Shut the server down in order; its data stays. Idempotent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as ``kill -9`` does; its data stays. Idempotent."""
        self._end(signal.SIGKILL)

    def restart(self, **options: str | None) -> None:
        """Stop and start, from now on with these options too (underscores for dashes)."""
        self.stop()
        self.options.update((name.replace("_", "-"), value) for name, value in options.items())
        self.start()

    def close(self) -> None:
        """End the server at once and remove the private folder, if it has one. Idempotent."""
        self.kill()
        if self._folder is not None and self._given is None:
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

    # -- talking to it

    def connect(self, user: str = "root", password: str = "", **more: Any) -> Connection[Any]:
        """A connection over TCP, each statement a transaction unless it begins one; the caller closes it."""
        # Without TLS: the driver reads the machine's authorities for each connection, which takes longer than the rest
        # of it.
        settings: dict[str, Any] = {
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 10,
            "ssl_disabled": True,
            **more,
        }
        return pymysql.connect(host=self.host, port=self.port, user=user, password=password, **settings)

    def sql(self, *statements: str, database: str | None = None) -> list[Row]:
        """Run the statements as root, in order, on a connection of their own; returns the rows of the last one."""
        rows: list[Row] = []
        with contextlib.closing(self.connect(database=database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def command(self, name: str) -> list[str]:
        """The words that run the flavour's ``client``, ``dump`` or ``binlog`` on this server as root, up to further
        arguments.
        """
        connection = [f"--host={self.host}", f"--port={self.port}", "--protocol=TCP", "--user=root"]
        return [*self.program(name), "--no-defaults", *connection]

    def client(self, name: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run :meth:`command`; returns what it prints. Raises ``CalledProcessError``."""
        return subprocess.run([*self.command(name), *arguments], check=True, input=stdin, stdout=subprocess.PIPE).stdout

    # -- inside

    def _make_data(self) -> None:
        if self._template is not None:
            shutil.copytree(self._template, self.data)
            return
        run(f"initialising {self.flavour}", self.initialise())
        self._users.write_text(_USERS.format(user=self.user, password=self.password, rights=self.rights))

    @property
    def _users(self) -> Path:
        """Makes the accounts at the first start."""
        return self.folder / "users.sql"

    def _launch(self, command: Sequence[str]) -> None:
        places = {
            "datadir": self.seen(self.data),
            "tmpdir": self.seen(self.folder / "tmp"),
            "socket": self.seen(self.socket),
            "pid-file": self.seen(self.folder / "pid"),
            "port": str(self.port),
        }
        if self._users.exists():
            places["init-file"] = self.seen(self._users)
        options = [
            f"--{key}" if value is None else f"--{key}={value}" for key, value in (self.options | places).items()
        ]
        guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid())]
        guard.append(self._remove if self._given else str(self.folder))
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C in a terminal reaches the owner, who stops the server when it is ready to.
            self._guard = subprocess.Popen(
                [*guard, *command, "--no-defaults", *as_root(), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline() or 0)
        self._await_ready()
        self._users.unlink(missing_ok=True)

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
                raise SourceUnavailable(
                    f"the private {self.flavour} server {what}; its log ends: {said[-_LOG_TAIL:].strip() or '(empty)'}",
                    hint=f"see {self.log}",
                )
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        """Whether *our* server serves: another one on the same port has another data folder."""
        try:
            return bool(self.sql("SELECT @@datadir")[0][0] == f"{self.seen(self.data)}/")
        except pymysql.err.OperationalError:
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


def as_root() -> list[str]:
    """The servers refuse to run as root unless told to; a change of user would end the guard's hold on them."""
    return ["--user=root"] if os.geteuid() == 0 else []


def run(what: str, command: Sequence[str]) -> None:
    """Run a command to its end. Raises :class:`~wormhole.model.errors.SourceUnavailable` with what it said."""
    ended = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if ended.returncode:
        said = ended.stdout.decode(errors="replace")[-_LOG_TAIL:].strip()
        raise SourceUnavailable(f"{what} failed (exit {ended.returncode}): {said or '(it said nothing)'}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
