"""The encodings of databases, and the treatment of invalid bytes. Pure.

A server converts all text to the session's encoding. If a value cannot be converted, the server ends the session, and
the log cannot be read past that value. So a session uses the database's own encoding, which needs no conversion, and
the publisher decodes the bytes here. A value that is not valid text is sent as bytes. An invalid byte in a name is
shown as in a URL, ``%81``.
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
"""The encodings in which Python and PostgreSQL have the same characters. The server converts the others (EUC_JIS_2004,
EUC_JP, EUC_KR, EUC_TW, MULE_INTERNAL)."""

_SHOWN: Final = "wormhole-shown"
_SHOWN_BYTE: Final = re.compile("%[89A-F][0-9A-F]")


def _show(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"%{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_SHOWN, _show)


@dataclass(frozen=True, slots=True)
class Encoding:
    """``client``: the session's ``client_encoding``. ``codec``: Python's name of it."""

    client: str
    codec: str

    @property
    def is_utf8(self) -> bool:
        """Whether the encoding is UTF-8, as in updates."""
        return self.codec == "utf-8"

    def show(self, raw: bytes) -> str:
        """Decode a name. Invalid bytes are shown as in a URL."""
        return raw.decode(self.codec, _SHOWN)

    def to_utf8(self, raw: bytes) -> bytes | None:
        """Convert a value to UTF-8; ``None``: it is not valid text."""
        try:
            return raw.decode(self.codec).encode()
        except UnicodeDecodeError:
            return None

    def to_server(self, text: str) -> bytes:
        """Encode a statement. A character that the encoding lacks is in no name or value of the database."""
        return text.encode(self.codec, "backslashreplace")

    def is_shown(self, name: str) -> bool:
        """Whether the name may contain invalid bytes in their shown form, which the server would not accept."""
        return self.client != "UTF8" and _SHOWN_BYTE.search(name) is not None


UTF8: Final = Encoding("UTF8", "utf-8")


def encoding_of(server: str) -> Encoding:
    """The session encoding for a database with encoding ``server``."""
    codec = _CODECS.get(server)
    return UTF8 if codec is None else Encoding(server, codec)
