"""The encodings of databases, and the handling of bytes that are not valid in them. Pure.

A server converts everything to the session's encoding. If one value cannot be converted, the server ends the session,
and the log could not be read past that value. So a session uses the database's own encoding, in which nothing is
converted, and the bytes are decoded here. A value that is not valid text is sent as bytes. In a name each invalid byte
is shown as in a URL, ``%81``.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["UTF8", "Encoding", "encoding_of"]

_CODECS: Final = {
    "UTF8": "utf-8",
    "SQL_ASCII": "utf-8",  # may hold any bytes; most clients write UTF-8
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
"""The encodings for which Python has the same characters as PostgreSQL. The others (EUC_JIS_2004, EUC_JP, EUC_KR,
EUC_TW, MULE_INTERNAL) are converted by the server."""

_SHOWN: Final = "wormhole-shown"
_SHOWN_BYTE: Final = re.compile("%[89A-F][0-9A-F]")


def _show(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"%{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_SHOWN, _show)


@dataclass(frozen=True, slots=True)
class Encoding:
    """``client``: the session's ``client_encoding``. ``codec``: Python's name for it."""

    client: str
    codec: str

    @property
    def is_utf8(self) -> bool:
        """Whether valid text already has the encoding of the wire."""
        return self.codec == "utf-8"

    def show(self, raw: bytes) -> str:
        """Decode a name; see the module."""
        return raw.decode(self.codec, _SHOWN)

    def to_utf8(self, raw: bytes) -> bytes | None:
        """A value in UTF-8; ``None``: it is not valid text."""
        try:
            return raw.decode(self.codec).encode()
        except UnicodeDecodeError:
            return None

    def to_server(self, text: str) -> bytes:
        """Encode a statement. A character that the encoding does not have is in no name or value of the database."""
        return text.encode(self.codec, "backslashreplace")

    def is_shown(self, name: str) -> bool:
        """Whether the name may contain bytes in shown form. The server would not accept such a name."""
        return self.client != "UTF8" and _SHOWN_BYTE.search(name) is not None


UTF8: Final = Encoding("UTF8", "utf-8")


def encoding_of(server: str) -> Encoding:
    """The encoding of a session in a database with encoding ``server``."""
    codec = _CODECS.get(server)
    return UTF8 if codec is None else Encoding(server, codec)
