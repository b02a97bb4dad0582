"""A private database server of the MySQL kind: what its flavours share.

It listens on ``127.0.0.1`` and a socket in its folder, and reads no option file of the machine. :mod:`.mariadb` is the
one that the demo plays on; the tests have a second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pymysql
from pymysql.connections import Connection

from wormhole.host.private_server import LOG_TAIL, PrivateServer
from wormhole.model.errors import SourceUnavailable

__all__ = ["DatabaseServer", "Row", "as_root", "run"]

Row = tuple[Any, ...]

_ASKED_S: Final = 2
"""How long a server may take to say which one it is."""

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


class DatabaseServer(PrivateServer):
    """One server. ``options``: the options of the server, without dashes in front, over the defaults; ``None`` for one
    without a value. ``template``: the data folder of another one, stopped in order, to be copied instead of made anew.
    Its flavour is also the scheme of :attr:`url`.
    """

    rights: ClassVar[str]
    """What the publisher's account is granted."""
    defaults: ClassVar[Mapping[str, str | None]]
    """The flavour's own options."""

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
        super().__init__(folder, remove=remove)
        self.options: dict[str, str | None] = {**_OPTIONS, **self.defaults, **(options or {})}
        self._template = template

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

    def seen(self, path: Path) -> str:
        """A path as the server sees it."""
        return str(path)

    # -- where it is

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "s"

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
        """The version as the program prints it. The server need not run."""
        return subprocess.run(
            [*self.server_command(), "--version"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    @property
    def binlogs(self) -> list[Path]:
        """The binlog files that the server knows, oldest first."""
        return [self.data / str(name) for name, *_ in self.sql("SHOW BINARY LOGS")]

    # -- life

    def restart(self, **options: str | None) -> None:
        """Stop and start, from now on with these options too (underscores for dashes)."""
        self.stop()
        self.options.update((name.replace("_", "-"), value) for name, value in options.items())
        self.start()

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

    # -- what a private server needs

    def find_programs(self) -> None:
        self.server_command()

    def prepare(self) -> None:
        if not self.data.exists() and self._template is not None:
            shutil.copytree(self._template, self.data)
        elif not self.data.exists():
            run(f"initialising {self.flavour}", self.initialise())
            self._users.write_text(_USERS.format(user=self.user, password=self.password, rights=self.rights))
        if not self.password_file.exists():
            self.password_file.touch(0o600)
            self.password_file.write_text(self.password + "\n")

    @property
    def _users(self) -> Path:
        """Makes the accounts at the first start."""
        return self.folder / "users.sql"

    def start_command(self) -> list[str]:
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
        return [*self.server_command(), "--no-defaults", *as_root(), *options]

    def answers(self) -> bool:
        try:  # another program on the port may say nothing at all
            with contextlib.closing(self.connect(read_timeout=_ASKED_S)) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@datadir")
                return bool(cursor.fetchall() == ((f"{self.seen(self.data)}/",),))
        except pymysql.err.OperationalError:
            return False

    def admit(self) -> None:
        self._users.unlink(missing_ok=True)


def as_root() -> list[str]:
    """The servers refuse to run as root unless they are allowed to; a change of user would end the guard's hold on
    them.
    """
    return ["--user=root"] if os.geteuid() == 0 else []


def run(what: str, command: Sequence[str]) -> None:
    """Run a command to its end. Raises :class:`~wormhole.model.errors.SourceUnavailable` with its output."""
    ended = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if ended.returncode:
        said = ended.stdout.decode(errors="replace")[-LOG_TAIL:].strip()
        raise SourceUnavailable(f"{what} failed (exit {ended.returncode}): {said or '(it printed nothing)'}")
