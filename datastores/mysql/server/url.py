"""Parses ``mysql://user@host:3306/?tls=verify&ca=/etc/ssl/db.pem``: the URL of a database server.

Parsing reads no files and does not use the network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from datastores.common.url_parts import EXPOSED, UrlParts, options_of

__all__ = ["EXPOSED", "SERVER_KINDS", "TLS_MODES", "ServerUrl", "TlsMode"]

SERVER_KINDS: Final = ("mysql", "mariadb")
"""The schemes of servers with MySQL's protocol. They are equivalent, because the server reports its kind."""

TlsMode = Literal["off", "prefer", "require", "verify-ca", "verify"]
"""``off``: no TLS. ``prefer``: TLS if the server offers it. ``require``: TLS is required. ``verify-ca``: TLS with a
certificate of the authority. ``verify``: TLS with a certificate of the authority for the host's name.
"""
TLS_MODES: Final[tuple[TlsMode, ...]] = get_args(TlsMode)

_OPTIONS: Final = ("socket", "tls", "ca", "cert", "key", "server_public_key", "unverified_server")
_PATHS: Final = ("socket", "ca", "cert", "key", "server_public_key")


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The parts of a URL. A missing part is empty (``port``: 0; ``tls``, ``password``: ``None``).

    ``server_public_key``: PEM file of the RSA key that encrypts the password without TLS. ``exposed``: whether the URL
    has ``unverified_server``, by which the password is sent to any peer.
    """

    kind: str
    user: str = ""
    password: str | None = field(default=None, repr=False)
    host: str = ""
    port: int = 0
    socket: str = ""
    tls: TlsMode | None = None
    ca: str = ""
    cert: str = ""
    key: str = ""
    server_public_key: str = ""
    exposed: bool = False

    @classmethod
    def parse(cls, text: str) -> ServerUrl:
        """Read a URL. Raises ``ValueError`` with the expected form; its message never holds the password."""
        url = UrlParts.parse(text, SERVER_KINDS, _form(text))
        if url.path not in ("", "/") or url.fragment:
            raise ValueError(
                f"must be {_form(text)}, with nothing behind the port but options: a server has one log for all its "
                "databases; "
                'choose among them with tables, "shop.*"'
            )
        options = _options(url.query)
        return cls(
            kind=url.scheme,
            user=url.user,
            password=url.password,
            host=url.host,
            port=url.port,
            socket=options.get("socket", ""),
            tls=_tls_mode(options),
            ca=options.get("ca", ""),
            cert=options.get("cert", ""),
            key=options.get("key", ""),
            server_public_key=options.get("server_public_key", ""),
            exposed="unverified_server" in options,
        )


def _options(query: str) -> dict[str, str]:
    return options_of(query, _OPTIONS, _PATHS, ("cert", "key"))


def _tls_mode(options: dict[str, str]) -> TlsMode | None:
    given = options.get("tls")
    mode = next((known for known in TLS_MODES if known == given), None)
    if given is not None and mode is None:
        raise ValueError(f"must have one of {', '.join(TLS_MODES)} as tls")
    if "ca" in options and mode not in (None, "verify-ca", "verify"):
        raise ValueError(f"must not give a ca with tls={mode}, which verifies nothing: write tls=verify")
    if "cert" in options and mode in ("off", "prefer"):
        raise ValueError(f"must not give a cert with tls={mode}, which may go without TLS: write tls=require")
    if mode is None and "ca" in options:
        mode = "verify"
    if "unverified_server" in options and mode in ("verify-ca", "verify"):
        raise ValueError(f"must not give unverified_server with tls={mode}, which verifies the server")
    if "server_public_key" in options:
        if mode not in (None, "off") or "cert" in options:
            raise ValueError(
                "must not give a server_public_key with TLS, where no RSA key is used: write tls=verify&ca=/path.pem"
            )
        return "off"
    return "require" if mode is None and "cert" in options else mode


def _form(text: str) -> str:
    kind = text.partition(":")[0]
    return f"{kind if kind in SERVER_KINDS else 'mysql'}://user@host:3306"
