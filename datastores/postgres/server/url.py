"""Parses ``postgres://user@host:5432/shop?sslmode=verify-full``: the URL of one database of a server.

Parsing reads no files and does not use the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, get_args
from urllib.parse import unquote

from datastores.common.url_parts import EXPOSED, UrlParts, options_of

__all__ = ["DEFAULT_PORT", "EXPOSED", "SCHEMES", "SSL_MODES", "ServerUrl", "SslMode"]

SCHEMES: Final = ("postgres", "postgresql")
"""The two schemes are equivalent."""
DEFAULT_PORT: Final = 5432

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
"""As libpq's ``sslmode``."""
SSL_MODES: Final[tuple[SslMode, ...]] = get_args(SslMode)

_OPTIONS: Final = ("host", "sslmode", "sslrootcert", "sslcert", "sslkey", "unverified_server", "publication", "slot")
_PATHS: Final = ("host", "sslcert", "sslkey")
_SLOT: Final = re.compile(r"[a-z0-9_]{1,40}")
_LONGEST_NAME: Final = 63


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The parts of a URL. A missing part is empty (``port``: 0; ``sslmode``, ``password``: ``None``).

    ``socket``: the folder of a Unix socket, instead of a host. ``publication``, ``slot``: names on the server; empty:
    made from the log's name. ``exposed``: whether the URL has `EXPOSED`.
    """

    kind: str
    database: str
    user: str = ""
    password: str | None = field(default=None, repr=False)
    host: str = ""
    port: int = 0
    socket: str = ""
    sslmode: SslMode | None = None
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    exposed: bool = False
    publication: str = ""
    slot: str = ""

    @classmethod
    def parse(cls, text: str) -> ServerUrl:
        """Read a URL. Raises ``ValueError`` with the expected form; its message never holds the password."""
        url = UrlParts.parse(text, SCHEMES, _form(text))
        database = unquote(url.path[1:])
        if not database or "/" in url.path[1:] or url.fragment:
            raise ValueError(f"must be {_form(text)}, with one database behind the port: each has a log of its own")
        options = _options(url.query)
        if options.get("host") and url.host:
            raise ValueError(
                f"must not name a host and a socket: write {url.scheme}://user@/{database}?host=/run/postgresql"
            )
        for what, value in (("database", database), ("user", url.user)):
            if "\0" in value or len(value.encode()) > _LONGEST_NAME:
                raise ValueError(f"must have a {what} of at most {_LONGEST_NAME} bytes")
        return cls(
            kind=url.scheme,
            database=database,
            user=url.user,
            password=url.password,
            host=url.host,
            port=url.port,
            socket=options.get("host", ""),
            sslmode=_ssl_mode(options),
            sslrootcert=options.get("sslrootcert", ""),
            sslcert=options.get("sslcert", ""),
            sslkey=options.get("sslkey", ""),
            exposed="unverified_server" in options,
            publication=options.get("publication", ""),
            slot=options.get("slot", ""),
        )


def _options(query: str) -> dict[str, str]:
    options = options_of(query, _OPTIONS, _PATHS, ("sslcert", "sslkey"))
    if not options.get("sslrootcert", "/").startswith("/") and options["sslrootcert"] != "system":
        raise ValueError("must give sslrootcert as an absolute path, or as system")
    if "slot" in options and not _SLOT.fullmatch(options["slot"]):
        raise ValueError("must have a slot of at most 40 of the characters a-z, 0-9 and _")
    publication = options.get("publication", "p")
    if "\0" in publication or len(publication.encode()) > _LONGEST_NAME:
        raise ValueError(f"must have a publication of at most {_LONGEST_NAME} bytes")
    return options


def _ssl_mode(options: dict[str, str]) -> SslMode | None:
    given = options.get("sslmode")
    mode = next((known for known in SSL_MODES if known == given), None)
    if given is not None and mode is None:
        raise ValueError(f"must have one of {', '.join(SSL_MODES)} as sslmode")
    verifies = mode in (None, "verify-ca", "verify-full")
    if "sslrootcert" in options and not verifies:
        raise ValueError(f"must not give a sslrootcert with sslmode={mode}: write sslmode=verify-full")
    if mode == "verify-ca" and options.get("sslrootcert", "system") == "system":
        raise ValueError("must give a sslrootcert with sslmode=verify-ca: the file of the authority")
    if "sslcert" in options and mode in ("disable", "allow", "prefer"):
        raise ValueError(f"must not give a sslcert with sslmode={mode}, which may go without TLS: write require")
    if mode is None and "sslrootcert" in options:
        mode = "verify-full"
    if "unverified_server" in options and mode in ("verify-ca", "verify-full"):
        raise ValueError(f"must not give unverified_server with sslmode={mode}, which verifies the server")
    return "require" if mode is None and "sslcert" in options else mode


def _form(text: str) -> str:
    kind = text.partition(":")[0]
    return f"{kind if kind in SCHEMES else SCHEMES[0]}://user@host:5432/database"
