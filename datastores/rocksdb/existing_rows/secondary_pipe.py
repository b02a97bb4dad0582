"""Reads and writes messages between the publisher and a secondary instance's process: JSON, followed by bytes."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Final

__all__ = ["read_message", "write_message"]

_SIZES: Final = struct.Struct("<QQ")


def write_message(pipe: BinaryIO, header: dict[str, Any], blob: bytes = b"") -> None:
    """Write a message. Raises ``OSError`` if the other side is gone."""
    text = json.dumps(header).encode()
    pipe.write(_SIZES.pack(len(text), len(blob)))
    pipe.write(text)
    pipe.write(blob)
    pipe.flush()


def read_message(pipe: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Read a message; ``None``: the other side is gone."""
    head = pipe.read(_SIZES.size)
    if len(head) < _SIZES.size:
        return None
    text_size, blob_size = _SIZES.unpack(head)
    text, blob = pipe.read(text_size), pipe.read(blob_size)
    if len(text) < text_size or len(blob) < blob_size:
        return None
    return json.loads(text), blob
