"""The encodings of databases, and what becomes of bytes that are no text in theirs. Pure.

A server converts what it sends to the encoding that the session asks for, and ends a session in which one value cannot
be converted: with it the whole log. So a session asks for the database's own encoding, in which nothing is converted,
and the bytes are decoded here. A value that is no text goes as bytes. In a name each such byte is shown as in a URL,
``%81``.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["UTF8", "Encoding", "encoding_of"]

_CODECS: Final = {
    "UTF8": "utf-8",
    "SQL_ASCII": "utf-8",  # has any bytes; those of most clients are UTF-8
    "EUC_CN": "gb2312",
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "LATIN1": "iso8859-1",
    "LATIN2": "iso8859-2",
    "LATIN3": "iso8859-3",
    "LATIN4": "iso8859-4",
    "LATIN5": "iso8859-9",
    "LATIN6": "iso8859-10",
    "LATIN7": "iso8859-13",
    "LATIN8": "iso8859-14",
    "LATIN9": "iso8859-15",
    "LATIN10": "iso8859-16",
    **{f"ISO_8859_{part}": f"iso8859-{part}" for part in range(5, 9)},
    "WIN866": "cp866",
    "WIN874": "cp874",
    **{f"WIN{page}": f"cp{page}" for page in range(1250, 1259)},
}
"""Those of which Python has the same characters as PostgreSQL. The others (EUC_JIS_2004, EUC_JP, EUC_KR, EUC_TW,
MULE_INTERNAL) are converted by the server."""

_SHOWN: Final = "wormhole-shown"
_SHOWN_BYTE: Final = re.compile("%[89A-F][0-9A-F]")


def _show(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"%{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_SHOWN, _show)


@dataclass(frozen=True, slots=True)
class Encoding:
    """``client``: what the session asks for; ``codec``: Python's name of it."""

    client: str
    codec: str

    @property
    def is_utf8(self) -> bool:
        """Whether text comes as the wire has it, where it is text."""
        return self.codec == "utf-8"

    def show(self, raw: bytes) -> str:
        """A name; see the module."""
        return raw.decode(self.codec, _SHOWN)

    def to_utf8(self, raw: bytes) -> bytes | None:
        """A value; ``None``: it is no text."""
        try:
            return raw.decode(self.codec).encode()
        except UnicodeDecodeError:
            return None

    def to_server(self, text: str) -> bytes:
        """A statement. What the encoding does not have cannot be the name or the value of anything there."""
        return text.encode(self.codec, "backslashreplace")

    def is_shown(self, name: str) -> bool:
        """Whether bytes of a name may be shown in it, so that it is not what the server takes."""
        return self.client != "UTF8" and _SHOWN_BYTE.search(name) is not None


UTF8: Final = Encoding("UTF8", "utf-8")


def encoding_of(server: str) -> Encoding:
    """What a session of a database in this encoding asks for."""
    codec = _CODECS.get(server)
    return UTF8 if codec is None else Encoding(server, codec)
