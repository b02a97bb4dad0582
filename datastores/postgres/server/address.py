"""Determines a database's address and account: from the URL, a password file, ``~/.pgpass`` or a prompt."""

from __future__ import annotations

import getpass
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from datastores.common.password_file import Password
from datastores.postgres.server.url import DEFAULT_PORT, ServerUrl, SslMode
from wormhole.config.passwords import without_password
from wormhole.host.tls import is_loopback
from wormhole.model.errors import UsageError

__all__ = ["NAME_PREFIX", "Address", "parse", "slot_name"]

NAME_PREFIX: Final = "wormhole_"
"""The prefix of the names of a log's publication and slots, unless the URL names them."""
_NOT_IN_SLOTS: Final = re.compile(r"[^a-z0-9_]+")
_LONGEST_SLOT: Final = 40


@dataclass(frozen=True, slots=True)
class Address:
    """A database of a server and an account on it. ``socket``: the folder of a Unix socket, instead of a host.

    ``publication``, ``slot``: names on the server. ``names_publication``, ``names_slot``: whether the URL names them.
    ``exposed``: the password may also be sent to a server whose identity is not verified. ``password_from``: where the
    password was found, for messages. ``remarks``: warnings about the files, for the user.
    """

    host: str
    port: int
    user: str
    database: str
    publication: str
    slot: str
    password: str = field(default="", repr=False)
    socket: str = ""
    sslmode: SslMode = "prefer"
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    exposed: bool = False
    kind: str = "postgres"
    password_from: str = "no password was given"  # noqa: S105 - says where one comes from
    remarks: tuple[str, ...] = ()
    names_publication: bool = False
    names_slot: bool = False

    def __str__(self) -> str:
        """``user@host:port/database``; never the password."""
        return f"{self.user}@{self.where}/{self.database}"

    @property
    def where(self) -> str:
        """Host and port, or the socket's folder and its port."""
        if self.socket:
            return f"{self.socket}:{self.port}" if self.port != DEFAULT_PORT else self.socket
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def stays_here(self) -> bool:
        """Whether the connection stays on this host."""
        return bool(self.socket) or is_loopback(self.host)

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is checked."""
        return self.sslmode in ("verify-ca", "verify-full")


def parse(
    url: str,
    log: str,
    *,
    password_file: Path | None = None,
    pgpass: Path | bool = False,
    prompt: Callable[[str], str] | None = None,
) -> Address:
    """The address in a URL. ``log``: the log's name, from which the names of publication and slots are made.

    The password comes from ``password_file``, or else from the URL, ``pgpass`` (``True``: ``~/.pgpass`` if it exists;
    ``False``: none) or ``prompt``, in this order. ``prompt`` is called with the question. Raises
    :class:`~wormhole.model.errors.UsageError`, whose message never holds a password.
    """
    shown = without_password(url)
    try:
        given = ServerUrl.parse(url)
    except ValueError as error:
        raise UsageError(f"{shown} {error}") from None
    user = given.user or (getpass.getuser() if pgpass or prompt else "")
    if not user:
        raise UsageError(f"{shown} names no user", hint=f"write {given.kind}://user@host:5432/{given.database}")
    host, port = ("" if given.socket else given.host or "localhost"), given.port or DEFAULT_PORT
    remarks: list[str] = []
    kept = _kept_password(pgpass, (host or "localhost", str(port), given.database, user), remarks)
    ask = prompt and partial(prompt, f"Password of {user} on {given.socket or host}: ")
    password = Password.of(shown, given.password, file=password_file, kept=kept, prompt=ask)
    name = slot_name(log)
    return Address(
        host=host,
        port=port,
        user=user,
        database=given.database,
        publication=given.publication or name,
        slot=given.slot or name,
        password=password.text,
        socket=given.socket,
        sslmode=given.sslmode or "prefer",
        sslrootcert=given.sslrootcert,
        sslcert=given.sslcert,
        sslkey=given.sslkey,
        exposed=given.exposed,
        kind=given.kind,
        password_from=password.found,
        remarks=(*remarks, *password.remarks),
        names_publication=bool(given.publication),
        names_slot=bool(given.slot),
    )


def slot_name(log: str) -> str:
    """The prefix of the names of a log's publication and slots if its URL has none: ``wormhole_<log>``, with ``_`` for
    characters that a slot's name cannot have.
    """
    plain = _NOT_IN_SLOTS.sub("_", log.lower()).strip("_")
    return f"{NAME_PREFIX}{plain}"[:_LONGEST_SLOT]


def _kept_password(pgpass: Path | bool, wanted: tuple[str, ...], remarks: list[str]) -> tuple[str, Path] | None:
    """The password in ``~/.pgpass`` for host, port, database and user, and the file's path. Like libpq, this ignores a
    file that other users may read.
    """
    if pgpass is False:
        return None
    path = Path.home() / ".pgpass" if pgpass is True else pgpass
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            remarks.append(f"{path} is not used, since others may read it: chmod 600 {path}")
            return None
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {type(error).__name__}", hint="correct or remove it") from None
    for fields in _entries(text):
        if all(one in ("*", of) for one, of in zip(fields, wanted, strict=False)):
            return fields[4], path
    return None


def _entries(text: str) -> Iterator[list[str]]:
    """The entries of a password file (https://www.postgresql.org/docs/current/libpq-pgpass.html)."""
    for line in text.splitlines():
        fields = _split(line)
        if len(fields) == 5 and not line.startswith("#"):
            yield fields


def _split(line: str) -> list[str]:
    fields, escaped = [""], False
    for char in line:
        if escaped or char not in "\\:":
            fields[-1] += char
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            fields.append("")
    return fields
