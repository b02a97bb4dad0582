"""The output of publishers, in files of limited size: a current file and an older one. All calls block.

A publisher writes to its file directly, so it does not depend on the monitor. The monitor checks the size regularly,
copies a large file and empties it. The publisher appends, so it continues at the beginning of the emptied file.
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
"""The form in which the command line prints an error. An earlier release printed no code."""


def log_file(folder: Path, name: str) -> Path:
    """The file for the output of the publisher of the log ``dataset/copy/log``."""
    return folder / f"{name.replace('/', '.')}.log"


def rotate(path: Path, limit: int = LIMIT) -> bool:
    """Copy and empty the file if it is larger than ``limit``. Returns whether it was. A line that is written meanwhile
    may be lost.

    Raises ``OSError``, for example on a full disk. The file is emptied even then, which frees space.
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
    """Why the program ended: the last error in its output with the next step, or its last line if it has no error."""
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
    """The message of a line. Publishers without a terminal log JSON."""
    try:
        found = read_json(line)
    except ValueError:
        return line
    return str(found.get("message", line)) if isinstance(found, dict) else line
