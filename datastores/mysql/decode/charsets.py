"""Chooses the Python codec for a column's text by the number of its collation.

``information_schema.COLLATIONS`` has the numbers. Servers never change them, because they are part of table maps and
dump files. MariaDB shares MySQL's numbers and adds its own: 1024 is added for collations that do not pad, and the
collations of UCA 14.0.0 begin at 2048, with 256 numbers per character set.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from datastores.mysql.decode.charset_tables import EUCJPMS_EXTENSION, UPPER_HALVES

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ERRORS", "charset_name_of", "codec_of", "codec_of_charset", "is_reversible", "utf8_parts"]

ERRORS: Final = "wormhole-mysql"
_PART: Final = 256 << 10  # the most bytes of text that are decoded together
_WHOLE: Final = frozenset({"big5", "euc_jp"})
"""Name of an error handler for ``bytes.decode`` that replaces bytes without a character by ``?``, as ``SELECT``
does."""

_BINARY: Final = 63
_NO_PAD: Final = 1024
_UCA1400: Final = 2048
_UCA1400_CHARSETS: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

# The numbers of each character set's collations.
_COLLATIONS: Final[dict[str, tuple[int | range, ...]]] = {
    "armscii8": (32, 64),
    "ascii": (11, 65),
    "big5": (1, 84),
    "binary": (63,),
    "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52),
    "cp1256": (57, 67),
    "cp1257": (29, 58, 59),
    "cp850": (4, 80),
    "cp852": (40, 81),
    "cp866": (36, 68),
    "cp932": (95, 96),
    "dec8": (3, 69),
    "eucjpms": (97, 98),
    "euckr": (19, 85),
    "gb18030": (248, 249, 250),
    "gb2312": (24, 86),
    "gbk": (28, 87),
    "geostd8": (92, 93),
    "greek": (25, 70),
    "hebrew": (16, 71),
    "hp8": (6, 72),
    "keybcs2": (37, 73),
    "koi8r": (7, 74),
    "koi8u": (22, 75),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "latin2": (2, 9, 21, 27, 77),
    "latin5": (30, 78),
    "latin7": (20, 41, 42, 79),
    "macce": (38, 43),
    "macroman": (39, 53),
    "sjis": (13, 88),
    "swe7": (10, 82),
    "tis620": (18, 89),
    "ucs2": (35, 90, range(128, 160), range(640, 672)),
    "ujis": (12, 91),
    "utf16": (54, 55, range(101, 128), range(672, 704)),
    "utf16le": (56, 62),
    "utf32": (60, 61, range(160, 192), range(736, 768)),
    "utf8mb3": (33, 76, 83, range(192, 224), range(576, 608)),
    "utf8mb4": (45, 46, range(224, 248), range(255, 400), range(608, 640)),
}

# Every character set except `binary`, whose values are bytes.
_CODECS: Final = {
    "armscii8": "mysql-armscii8",
    "ascii": "ascii",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "mysql-cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "mysql-cp866",
    "cp932": "cp932",
    "dec8": "mysql-dec8",
    "eucjpms": "mysql-eucjpms",
    "euckr": "cp949",
    "gb18030": "mysql-gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "geostd8": "mysql-geostd8",
    "greek": "mysql-greek",
    "hebrew": "mysql-hebrew",
    "hp8": "hp-roman8",
    "keybcs2": "mysql-keybcs2",
    "koi8r": "koi8-r",
    "koi8u": "mysql-koi8u",
    "latin1": "mysql-latin1",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "sjis": "mysql-sjis",
    "swe7": "mysql-swe7",
    "tis620": "mysql-tis620",
    "ucs2": "utf-16-be",
    "ujis": "mysql-ujis",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
}


def _names() -> dict[int, str]:
    names: dict[int, str] = {}
    for charset, numbers in _COLLATIONS.items():
        for number in numbers:
            names.update(dict.fromkeys(number if isinstance(number, range) else (number,), charset))
    return names


_NAMES: Final = _names()


def charset_name_of(collation_id: int) -> str:
    """The name of the collation's character set; empty: the number is unknown."""
    if _UCA1400 <= collation_id < _UCA1400 + 256 * len(_UCA1400_CHARSETS):
        return _UCA1400_CHARSETS[(collation_id - _UCA1400) // 256]
    if _NO_PAD <= collation_id < _UCA1400:
        collation_id -= _NO_PAD
    return _NAMES.get(collation_id, "")


def codec_of(collation_id: int) -> str | None:
    """The codec for a collation; ``None``: the column's values are bytes."""
    return _CODECS.get(charset_name_of(collation_id))


def codec_of_charset(name: str) -> str | None:
    """The codec for a character set's name. Older servers call ``utf8mb3`` ``utf8``."""
    return _CODECS.get("utf8mb3" if name == "utf8" else name)


def is_reversible(codec: str) -> bool:
    """Whether a text determines its bytes in this codec: no two characters, and no invalid bytes, decode to the same
    text. Invalid UTF-8 stays bytes.
    """
    return codec in {"utf-8", "ascii"} or len({bytes((n,)).decode(codec, ERRORS) for n in range(256)}) == 256


# Single-byte character sets that differ from Python's codec: the codec, and MySQL's characters.
_DIFFERENT: Final[dict[str, tuple[str, dict[int, str]]]] = {
    "mysql-cp866": ("cp866", {0xFC: "\u207f", 0xFD: "\xb2"}),
    "mysql-cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), "\ufffe")),
    "mysql-greek": (
        "iso8859-7",
        {0xA1: "\u02bd", 0xA2: "\u02bc", **dict.fromkeys((0xA4, 0xA5, 0xAA), "\ufffe")},
    ),
    "mysql-hebrew": ("iso8859-8", {0xAF: "\u203e"}),
    "mysql-koi8u": ("koi8-u", {0x95: "\u2022"}),
    # The five undefined bytes of Windows' code page are ISO 8859-1's control characters.
    "mysql-latin1": ("cp1252", {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "mysql-swe7": (
        "ascii",
        {
            **dict(zip(b"@[\\]^`{|}~", "\xc9\xc4\xd6\xc5\xdc\xe9\xe4\xf6\xe5\xfc", strict=True)),
            0x7F: "\ufffe",
        },
    ),
    "mysql-tis620": ("tis-620", dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd")),
}

_DIFFERENT.update((name, ("ascii", dict(enumerate(upper, 0x80)))) for name, upper in UPPER_HALVES.items())

# The Python codec, and MySQL's characters where they differ: a backslash for the full-width one, and those of GB
# 18030-2005.
_TRANSLATED: Final[dict[str, tuple[str, dict[int, int]]]] = {
    "mysql-gb18030": ("gb18030", {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7}),
    "mysql-sjis": ("shift_jis", {0xFF3C: 0x5C}),
    "mysql-ujis": ("euc_jp", {0xFF3C: 0x5C}),
}

_DOUBLE_BYTE: Final = frozenset({"big5", "cp932", "cp949", "euc_jp", "gb2312", "gbk", "shift_jis"})
_EUC_JP_HALF_WIDTH: Final = 0x8E
_EUC_JP_THREE_BYTES: Final = 0x8F
_EUC_JP_OWN: Final = 0xF5


def _never(text: str, errors: str = "strict") -> tuple[bytes, int]:
    raise NotImplementedError("these codecs decode what a server sent; nothing is sent in them")


def _eucjpms(data: Buffer, errors: str = "strict") -> tuple[str, int]:
    """Decode EUC of Windows' characters: two bytes as in cp932, three bytes as in JIS X 0212 with IBM's extension."""
    raw = bytes(data)
    text, at = [], 0
    while at < len(raw):
        first = raw[at]
        size = 1 if first < 0x80 else 3 if first == _EUC_JP_THREE_BYTES else 2
        text.append(_eucjpms_character(raw[at : at + size]) if at + size <= len(raw) else "?")
        at += size
    return "".join(text), len(raw)


def _eucjpms_character(raw: bytes) -> str:
    if len(raw) > 1 and raw[0] != _EUC_JP_HALF_WIDTH and min(raw[-2:]) > 0xA0:
        row, cell = raw[-2] - 0xA0, raw[-1] - 0xA0
        if raw[-2] >= _EUC_JP_OWN:
            return chr(0xE000 + (raw[-2] - _EUC_JP_OWN + 10 * (len(raw) - 2)) * 94 + cell - 1)
        if len(raw) == 3:
            extension = (row - 0x53) * 94 + cell - 0x53
            if 0 <= extension < len(EUCJPMS_EXTENSION):
                return EUCJPMS_EXTENSION[extension]
            character = raw.decode("euc_jp", "replace").translate({0x7E: 0xFF5E, 0xA6: 0xFFE4})
        else:
            high = (row - 1) // 2 + (0x81 if row < 63 else 0xC1)
            low = cell + 0x3F + (cell >= 64) if row % 2 else cell + 0x9E
            character = bytes((high, low)).decode("cp932", "replace")
    else:
        character = raw.decode("euc_jp", "replace")
    return "?" if "\ufffd" in character else character


def utf8_parts(data: bytes, at: int, length: int, codec: str) -> Iterator[bytes]:
    """Convert the ``length`` bytes of text at ``at`` to UTF-8, in parts if the text is long and its codec permits.

    The codecs of this module do not, nor do those for which `_replace` needs characters of three bytes.
    """
    make = codecs.lookup(codec).incrementaldecoder if length > _PART and codec not in _WHOLE else None
    if make is None:
        yield data[at : at + length].decode(codec, ERRORS).encode()
        return
    decoder = make(ERRORS)
    end = at + length
    while at < end:
        stop = min(end, at + _PART)
        yield decoder.decode(data[at:stop], stop == end).encode()
        at = stop


def _find(name: str) -> codecs.CodecInfo | None:
    name = name.replace("_", "-")
    if name in _DIFFERENT:
        codec, characters = _DIFFERENT[name]
        # In a charmap, U+FFFE means that the byte has no character.
        plain = (bytes([byte]).decode(codec, "replace").replace("\ufffd", "\ufffe") for byte in range(256))
        table = "".join(characters.get(byte, character) for byte, character in enumerate(plain))

        def decode(data: Buffer, errors: str = "strict") -> tuple[str, int]:
            return codecs.charmap_decode(data, errors, table)

    elif name in _TRANSLATED:
        codec, changes = _TRANSLATED[name]
        inner = codecs.getdecoder(codec)

        def decode(data: Buffer, errors: str = "strict") -> tuple[str, int]:
            text, size = inner(data, errors)
            return text.translate(changes), size

    elif name == "mysql-eucjpms":
        decode = _eucjpms
    else:
        return None

    class OneByte(codecs.IncrementalDecoder):
        def decode(self, data: Buffer, final: bool = False) -> str:
            return decode(data, self.errors)[0]

    return codecs.CodecInfo(_never, decode, incrementaldecoder=OneByte if name in _DIFFERENT else None, name=name)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """The replacement for bytes without a character in Python: MySQL's character, or one question mark for each
    byte."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    if error.encoding not in _DOUBLE_BYTE:
        return "?", error.end
    first = error.object[error.start]
    size = 3 if error.encoding == "euc_jp" and first == _EUC_JP_THREE_BYTES else 2
    raw = error.object[error.start : error.start + size]
    if error.encoding == "big5" and first == 0xF9:
        return raw.decode("cp950", "replace").replace("\ufffd", "?"), error.start + len(raw)
    if error.encoding == "euc_jp" and len(raw) == size and raw[-2] >= _EUC_JP_OWN and raw[-1] > 0xA0:
        # User-defined characters: ten rows of two bytes, then ten of three.
        return chr(0xE000 + (raw[-2] - _EUC_JP_OWN + 10 * (size - 2)) * 94 + raw[-1] - 0xA1), error.start + size
    return "?", error.start + len(raw)


codecs.register(_find)
codecs.register_error(ERRORS, _replace)
