"""Parses and builds the names of binary log files: a base and a number."""

from __future__ import annotations

import re
from typing import Final

from wormhole.model.errors import DecodeError

__all__ = ["basename", "file_name", "file_number"]

_FILE: Final = re.compile(r"([^/\0]+)\.(\d{1,10})", re.DOTALL)  # without "/", because it becomes part of a path


def file_number(name: str) -> int:
    """The number in a file's name: 42 for ``binlog.000042``. Raises :class:`~wormhole.model.errors.DecodeError`."""
    found = _FILE.fullmatch(name)
    if not found:
        raise DecodeError(f"{name!r} is no name of a binary log: it does not end with a number, or names a folder")
    return int(found[2])


def basename(name: str) -> str:
    """The part before the number: ``binlog`` of ``binlog.000042``.

    Raises :class:`~wormhole.model.errors.DecodeError`."""
    file_number(name)
    return name.rpartition(".")[0]


def file_name(base: str, number: int) -> str:
    """The name of the file ``number``: six digits, more from 1000000 on."""
    return f"{base}.{number:06d}"
