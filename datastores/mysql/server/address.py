"""Determines a server's address and account: from the URL, a password file, ``~/.my.cnf`` or a prompt."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from datastores.common.password_file import Password
from datastores.mysql.server.url import EXPOSED, ServerUrl, TlsMode
from wormhole.config.passwords import without_password
from wormhole.model.errors import UsageError

__all__ = ["DEFAULT_PORT", "EXPOSED", "Address", "parse"]

DEFAULT_PORT: Final = 3306

# MySQL's own clients: https://dev.mysql.com/doc/refman/8.4/en/connection-options.html#option_general_ssl-mode
_SSL_MODES: Final[Mapping[str, TlsMode]] = {
    "DISABLED": "off",
    "PREFERRED": "prefer",
    "REQUIRED": "require",
    "VERIFY_CA": "verify-ca",
    "VERIFY_IDENTITY": "verify",
}
_ESCAPED: Final = {"b": "\b", "t": "\t", "n": "\n", "r": "\r", "\\": "\\", "s": " ", '"': '"', "'": "'"}
_ESCAPE: Final = re.compile(r"""\\([btnrs\\"'])""")


@dataclass(frozen=True, slots=True)
class Address:
    """A server and an account on it. ``socket``: the path of a Unix socket, used instead of host and port.

    ``ca``: a PEM file; without it ``verify`` and ``verify-ca`` trust the system's authorities. ``password_from``: where
    the password was found, for messages. ``server_public_key``: a PEM file; without TLS only this key may encrypt the
    password. ``exposed``: the password may also be sent to an unverified server. ``remarks``: warnings about the files,
    for the user.
    """

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    socket: str | None = None
    tls: TlsMode = "prefer"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_public_key: str | None = None
    exposed: bool = False
    kind: str = "mysql"
    password_from: str = "no password was given"  # noqa: S105 - says where one comes from
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """``user@host:port`` or ``user@socket``; never the password."""
        if self.socket:
            return f"{self.user}@{self.socket}"
        return f"{self.user}@{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The shortest URL of this address, without password and options."""
        return f"{self.kind}://{self.user}@{self.host}:{self.port}"


def parse(
    url: str,
    *,
    password_file: Path | None = None,
    my_cnf: Path | bool = True,
    prompt: Callable[[str], str] | None = None,
) -> Address:
    """The address in a URL.

    The password comes from ``password_file``, or else from the URL, the ``[client]`` section of ``my_cnf`` (``True``:
    ``~/.my.cnf`` if it exists; ``False``: none) or ``prompt``, in this order. ``prompt`` is called with the question.
    User, host, port, socket and TLS that the URL lacks also come from ``my_cnf``. If the URL has a host or a socket,
    the file supplies neither. Raises :class:`~wormhole.model.errors.UsageError`, whose message never holds a password.
    """
    shown = without_password(url)
    try:
        given = ServerUrl.parse(url)
    except ValueError as error:
        raise UsageError(f"{shown} {error}") from None
    client = _client_section(my_cnf)
    user = given.user or client.get("user", "")
    if not user:
        raise UsageError(f"{shown} names no user", hint=f"write {given.kind}://user@host:3306")
    host, port, socket = _where(given, client, shown)
    tls, ca = _tls(given, client)
    kept = (client["password"], _my_cnf_path(my_cnf)) if "password" in client else None
    ask = prompt and partial(prompt, f"Password of {user} on {socket or host}: ")
    password = Password.of(shown, given.password, file=password_file, kept=kept, prompt=ask)
    return Address(
        host=host,
        port=port,
        user=user,
        password=password.text,
        socket=socket,
        tls=tls,
        ca=ca,
        cert=given.cert or None,
        key=given.key or None,
        server_public_key=given.server_public_key or None,
        exposed=given.exposed,
        kind=given.kind,
        password_from=password.found,
        remarks=password.remarks,
    )


def _where(given: ServerUrl, client: Mapping[str, str], shown: str) -> tuple[str, int, str | None]:
    if given.socket and given.host not in ("", "localhost"):
        raise UsageError(
            f"{shown} names a host and a socket", hint=f"write {given.kind}://user@localhost/?socket={given.socket}"
        )
    host = given.host or client.get("host", "") or "localhost"
    # As in MySQL's clients, a socket in the file applies only to this host.
    socket = given.socket or (client.get("socket", "") if not given.host and host == "localhost" else "")
    port = str(given.port or client.get("port", "") or DEFAULT_PORT)
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"port {port!r} in the my.cnf file is no port", hint="correct its [client] section")
    return host, int(port), socket or None


def _tls(given: ServerUrl, client: Mapping[str, str]) -> tuple[TlsMode, str | None]:
    if given.tls is not None:
        return given.tls, given.ca or (client.get("ssl-ca") if given.tls in ("verify-ca", "verify") else None)
    mode = client.get("ssl-mode", "").upper()
    if mode and mode not in _SSL_MODES:
        raise UsageError(f"ssl-mode={mode} in the my.cnf file is none of {', '.join(_SSL_MODES)}")
    ca = client.get("ssl-ca")
    tls = _SSL_MODES[mode] if mode else "verify-ca" if ca else "prefer"
    return tls, ca if tls in ("verify-ca", "verify") else None


def _my_cnf_path(my_cnf: Path | bool) -> Path:
    return Path.home() / ".my.cnf" if isinstance(my_cnf, bool) else my_cnf


def _client_section(my_cnf: Path | bool) -> dict[str, str]:
    """The options of the ``[client]`` section, with ``-`` in their names; empty: no such section.

    Values may be quoted, as for MySQL's clients."""
    if my_cnf is False:
        return {}
    path = _my_cnf_path(my_cnf)
    parser = configparser.RawConfigParser(
        allow_no_value=True, strict=False, delimiters=("=",), comment_prefixes=("#", ";"), empty_lines_in_values=False
    )
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        # Lines that include other files are skipped.
        parser.read_string("\n".join(line for line in lines if not line.startswith("!")))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        # The parser's message quotes the line, which may hold the password.
        raise UsageError(f"{path} cannot be read: {type(error).__name__}", hint="correct or remove it") from None
    if not parser.has_section("client"):
        return {}
    return {name.replace("_", "-"): _unquoted(value) for name, value in parser.items("client") if value is not None}


def _unquoted(value: str) -> str:
    """A value as MySQL's clients read it: https://dev.mysql.com/doc/refman/8.4/en/option-files.html."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    else:
        value = value.partition("#")[0].rstrip()
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], value)
