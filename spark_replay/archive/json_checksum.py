"""A JSON file that begins with a checksum of itself. Pure.

The checksum is the first field, ``{"crc32": "8 hex digits", ...}``: the CRC-32 of the file's bytes with zeros in its
place.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["check_checksum", "with_checksum"]

_FIELD: Final = "crc32"
_NONE: Final = "00000000"
_SEALED: Final = re.compile(rb'(\{\s*"crc32":\s*")([0-9a-f]{8})(?=",)')


def with_checksum(given: Mapping[str, Any], **how: Any) -> bytes:
    """The file. ``given``: its fields, ``format`` first; ``how``: as of ``json.dumps``."""
    data = json.dumps({_FIELD: _NONE, **given}, **how).encode()
    return _SEALED.sub(lambda found: found[1] + b"%08x" % zlib.crc32(data), data, count=1)


def check_checksum(data: bytes) -> None:
    """Raises ``ValueError`` for a file that differs from its checksum, or has none."""
    found = _SEALED.match(data)
    if found is None or int(found[2], 16) != zlib.crc32(found[1] + _NONE.encode() + data[found.end(2) :]):
        raise ValueError("it differs from its own checksum")
