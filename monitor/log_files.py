"""What publishers print, kept in files of bounded size: the newest, and one older one beside it. All of it blocks.

A publisher writes to its file itself, so that it needs no monitor to be able to. The monitor looks at the size from
time to time and takes what is there aside; the publisher, which appends, goes on at the beginning of the emptied file.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from wormhole.model.json_input import read_json

__all__ = ["LIMIT", "keep_small", "last_words", "log_file"]

LIMIT: Final = 8 << 20
"""Bytes of one file."""

_TAIL: Final = 16 << 10


def log_file(folder: Path, name: str) -> Path:
    """Where the output of the log ``dataset/copy/log`` goes."""
    return folder / f"{name.replace('/', '.')}.log"


def keep_small(path: Path, limit: int = LIMIT) -> bool:
    """Take the file aside when it is larger than ``limit``; whether it was. A line written meanwhile may be missing.

    Raises ``OSError``, as on a full disk; the file is emptied then all the same, which is what makes room.
    """
    try:
        if path.stat().st_size <= limit:
            return False
    except FileNotFoundError:
        return False
    older = path.with_suffix(path.suffix + ".1")
    try:
        shutil.copyfile(path, older)
    finally:
        os.truncate(path, 0)
    return True


def last_words(path: Path) -> str:
    """Why the program ended, as far as it said: its last error with the next step, else its last line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith("error: "):
            following = lines[number + 1] if number + 1 < len(lines) else ""
            error = lines[number].removeprefix("error: ")
            return f"{error}. Next: {following.removeprefix('next: ')}" if following.startswith("next: ") else error
    return _message(lines[-1]) if lines else ""


def _message(line: str) -> str:
    """What a line says; publishers log as JSON where nobody watches."""
    try:
        found = read_json(line)
    except ValueError:
        return line
    return str(found.get("message", line)) if isinstance(found, dict) else line
