"""Small JSON files of the publisher's own, replaced whole: a crash leaves the old or the new content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["read_state", "write_state"]


def read_state(path: Path) -> dict[str, Any]:
    """The file's content; empty when there is none or when it is no JSON object (then it is made anew)."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_state(path: Path, content: dict[str, Any], *, sync: bool = True) -> None:
    """Replace the file. Raises ``OSError``. Without ``sync`` it outlives the process, but not surely a power cut."""
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    temporary.replace(path)
