"""The output of publishers, in files of bounded size: the current one, and one older one beside it. All calls block.

A publisher writes to its file itself, so it needs no monitor for that. The monitor checks the size regularly, copies a
large file and empties it; the publisher, which appends, continues at the beginning of the emptied file.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from wormhole.model.json_input import read_json
from wormhole.model.problem import Problem

__all__ = ["LIMIT", "last_error", "log_file", "rotate"]

LIMIT: Final = 8 << 20
"""Bytes of one file."""

_TAIL: Final = 16 << 10
_ERROR: Final = re.compile(r"error(?: \[(?P<code>[a-z-]+)\])?: (?P<text>.*)")
"""As the command line prints one; an earlier release printed no code."""


def log_file(folder: Path, name: str) -> Path:
    """The file for the output of the publisher of the log ``dataset/copy/log``."""
    return folder / f"{name.replace('/', '.')}.log"


def rotate(path: Path, limit: int = LIMIT) -> bool:
    """Copy and empty the file if it is larger than ``limit``; returns whether it was. A line written meanwhile may be
    missing.

    Raises ``OSError``, as on a full disk; the file is emptied even then, which frees space.
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


def last_error(path: Path) -> str:
    """Why the program ended: the last error in its output with the next step, else its last line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    for number in range(len(lines) - 1, -1, -1):
        if found := _ERROR.fullmatch(lines[number]):
            following = lines[number + 1 :]
            step = (
                following[0].removeprefix("next:").strip() if following and following[0].startswith("next:") else None
            )
            hint = "" if step is None else step or " ".join(following[1:])
            return str(Problem(found["text"], hint, found["code"] or ""))
    return _message(lines[-1]) if lines else ""


def _message(line: str) -> str:
    """The message of a line; publishers log as JSON when they have no terminal."""
    try:
        found = read_json(line)
    except ValueError:
        return line
    return str(found.get("message", line)) if isinstance(found, dict) else line
