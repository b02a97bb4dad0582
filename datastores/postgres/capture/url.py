"""Parses ``postgresql+capture://user@host:5432/shop?schema=wormhole``: a database whose changes triggers record.

Parsing reads no files and does not use the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from datastores.postgres.server.url import ServerUrl

__all__ = ["SCHEME", "CaptureUrl"]

SCHEME: Final = "postgresql+capture"
_PLAIN: Final = "postgresql"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_DEFAULT: Final = "wormhole"
_REFUSED: Final = ("publication", "slot")


@dataclass(frozen=True, slots=True)
class CaptureUrl:
    """``server``: the database's URL without the parameters of the capture. ``parts``: the parts of that URL.
    ``schema``: the schema of the objects that record changes.
    """

    server: str
    parts: ServerUrl
    schema: str

    @classmethod
    def parse(cls, text: str) -> CaptureUrl:
        """Read a URL. Raises ``ValueError`` with the expected form; its message never holds the password."""
        form = f"must be {SCHEME}://user@host:5432/database"
        if not text.startswith(f"{SCHEME}://"):
            raise ValueError(form)
        plain = _PLAIN + text.removeprefix(SCHEME)
        try:
            url = urlsplit(plain)
        except ValueError:
            raise ValueError(form) from None
        pairs = parse_qsl(url.query, keep_blank_values=True)
        schemas = [value for name, value in pairs if name == "schema"]
        if any(name in _REFUSED for name, _ in pairs):
            raise ValueError("must have no publication and no slot: triggers record the changes")
        if len(schemas) > 1 or not all(map(_SCHEMA.fullmatch, schemas)):
            raise ValueError("must have one schema of at most 40 of the characters a-z, 0-9 and _")
        kept = "&".join(part for part in url.query.split("&") if part and not part.startswith("schema="))
        server = urlunsplit(url._replace(query=kept))
        try:
            parts = ServerUrl.parse(server)
        except ValueError as error:
            raise ValueError(str(error).replace(f"{_PLAIN}://", f"{SCHEME}://")) from None
        return cls(server, parts, schemas[0] if schemas else _DEFAULT)

    def with_server(self, server: str) -> str:
        """The URL of the same capture with another URL for its database."""
        more = "" if self.schema == _DEFAULT else f"{'&' if '?' in server else '?'}schema={self.schema}"
        return f"{SCHEME}{server.removeprefix(_PLAIN)}{more}"
