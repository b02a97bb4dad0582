"""Finds which authentication a server requests of an account, before the password is used.

libpq answers every request: with the password itself, an MD5 digest of it, or a SCRAM proof of a single iteration.
While the server is down, every local user may take its port (above 1024) or its socket in ``/tmp``. So the login to an
unverified server begins with a separate session that only reads the server's request. That session ends without an
answer and leaves no line in the server's log.
"""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from datastores.postgres.server.address import Address
from datastores.postgres.server.scram import FEWEST_ITERATIONS, MECHANISM, MOST_ITERATIONS, Challenge, first_message
from datastores.postgres.server.url import EXPOSED
from datastores.postgres.server.waiting import ready
from datastores.postgres.sql_text import quote_identifier
from wormhole.model.errors import SourceUnavailable, UsageError

__all__ = ["Asked", "ask", "withheld"]

_VERSION: Final = 196608  # 3.0
_SSL_REQUEST: Final = struct.pack(">II", 8, 80877103)
_OK, _CLEARTEXT, _MD5, _SASL, _SASL_CONTINUE = 0, 3, 5, 10, 11
_NAMES: Final = {_CLEARTEXT: "as it is", _MD5: "as an MD5 digest"}
_LONGEST: Final = 16 << 10  # the most bytes of a message
_WAYS: Final = {"disable": (False,), "allow": (False, True), "prefer": (True, False), "require": (True,)}
_UNKNOWN: Final = "none is typed here"
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Asked:
    """The server's request. ``place``: the address that answered. ``challenge``: SCRAM's challenge; ``None``: the
    account needs no password, or uses another method."""

    place: str
    challenge: Challenge | None


class _RefusedError(Exception):
    """The server refuses a connection of this kind."""


def ask(address: Address, places: list[str], *, walsender: bool, deadline: float, interrupt: int) -> Asked | None:
    """The server's request; ``None``: no server gave a valid answer, and libpq will have the error.

    Raises :class:`~wormhole.model.errors.UsageError` if the server accepts only the password itself or a proof from
    which it can be guessed, and :class:`~wormhole.model.errors.SourceUnavailable` at the deadline.
    """
    for place in places:
        for tls in _WAYS.get(address.sslmode, ()) if not address.socket else (False,):
            try:
                with closing(_Talk(address, place, deadline, interrupt)) as talk:
                    return Asked(place, _challenge(address, talk, tls=tls, walsender=walsender))
            except (OSError, _RefusedError):
                continue
            except ValueError:
                return None
    return None


def withheld(address: Address, how: str) -> UsageError:
    """The error for a server that requests the password in a way that reveals it."""
    return UsageError(
        f"{address}: the server asks for the password {how}, and nothing shows that it is the database: its "
        "certificate is not verified; the password was not sent",
        hint="let the server ask for a SCRAM proof (SET password_encryption = 'scram-sha-256', then ALTER ROLE "
        f"{quote_identifier(address.user)} PASSWORD '...', and scram-sha-256 in pg_hba.conf); or write "
        "?sslmode=verify-full&sslrootcert=/path/of/ca.pem behind the URL; or, if any server that can answer there may "
        f"have the password, ?unverified_server={EXPOSED}",
        code="login-refused",
    )


def _challenge(address: Address, talk: _Talk, *, tls: bool, walsender: bool) -> Challenge | None:
    if tls and not talk.encrypt(_context(address)) and address.sslmode != "prefer":
        raise _RefusedError
    parameters = {"user": address.user, "database": address.database, "application_name": "wormhole"}
    parameters |= {"replication": "database"} if walsender else {}
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
    talk.send(struct.pack(">II", len(pairs) + 8, _VERSION) + pairs)
    kind, content = _authentication(talk)
    if kind in _NAMES:
        raise withheld(address, _NAMES[kind])
    if kind != _SASL or MECHANISM.encode() not in content.split(b"\0"):
        return None
    nonce = secrets.token_urlsafe(18)
    first = first_message(nonce)
    answer = MECHANISM.encode() + b"\0" + struct.pack(">I", len(first)) + first
    talk.send(b"p" + struct.pack(">I", len(answer) + 4) + answer)
    kind, content = _authentication(talk)
    if kind != _SASL_CONTINUE:
        raise ValueError("this message has no place in a login")
    challenge = Challenge.parse(content, nonce)
    if not challenge.fits:
        raise withheld(
            address,
            f"with a SCRAM proof of {challenge.iterations} iterations instead of {FEWEST_ITERATIONS} to "
            f"{MOST_ITERATIONS}",
        )
    return challenge


def _authentication(talk: _Talk) -> tuple[int, bytes]:
    """Kind and content of the next message, which must be about authentication."""
    kind, size = struct.unpack(">cI", talk.exactly(5))
    if kind == b"E":
        raise _RefusedError
    if kind != b"R" or not 8 <= size <= _LONGEST:
        raise ValueError("this message has no place in a login")
    content = talk.exactly(size - 4)
    return struct.unpack(">I", content[:4])[0], content[4:]


class _Talk:
    """A connection to ``place``. Each call ends at ``deadline``. Raises ``OSError`` if the connection breaks."""

    def __init__(self, address: Address, place: str, deadline: float, interrupt: int) -> None:
        self._where, self._deadline, self._interrupt = address.where, deadline, interrupt
        family = socket.AF_UNIX if address.socket else socket.AF_INET6 if ":" in place else socket.AF_INET
        self._host = address.host
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            target = f"{place}/.s.PGSQL.{address.port}" if address.socket else (place, address.port)
            try:
                self._socket.connect(target)
            except BlockingIOError:
                self._wait(select.POLLOUT)
                if failed := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(failed, "connect") from None
        except BaseException:
            self._socket.close()
            raise

    def encrypt(self, context: ssl.SSLContext) -> bool:
        """Begin TLS. Returns whether the server supports it."""
        self.send(_SSL_REQUEST)
        if self.exactly(1) != b"S":  # exactly one byte precedes TLS
            return False
        self._socket = context.wrap_socket(self._socket, server_hostname=self._host, do_handshake_on_connect=False)
        self._again(self._socket.do_handshake)
        return True

    def send(self, data: bytes) -> None:
        while data:
            data = data[self._again(partial(self._socket.send, data)) :]

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._again(partial(self._socket.recv, size - len(data)))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data

    def close(self) -> None:
        self._socket.close()

    def _again(self, call: Callable[[], _Found]) -> _Found:
        while True:
            try:
                return call()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
                self._wait(select.POLLIN if isinstance(wanted, ssl.SSLWantReadError) else select.POLLOUT)
            except BlockingIOError:
                self._wait(select.POLLIN)

    def _wait(self, events: int) -> None:
        if not ready(self._socket.fileno(), events, self._deadline, self._interrupt):
            raise SourceUnavailable(
                f"{self._where} does not answer in time",
                hint="check the address, the network and the server's load; a retry follows",
            )


def _context(address: Address) -> ssl.SSLContext:
    """A TLS context like libpq's: the server's certificate is not checked, and the client's is sent on request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(RuntimeError):  # the user has no home folder
        folder = Path.home() / ".postgresql"
        cert, key = (
            Path(address.sslcert or folder / "postgresql.crt"),
            Path(address.sslkey or folder / "postgresql.key"),
        )
        if cert.exists() and key.exists():
            context.load_cert_chain(cert, key, password=_UNKNOWN)
    return context
