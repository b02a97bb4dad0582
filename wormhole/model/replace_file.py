"""Replacing a whole file in one step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(
    path: Path, data: str | bytes, *, sync: bool = True, opener: Callable[[str, int], int] | None = None
) -> None:
    """Write ``data`` to ``path`` in one step: a reader sees the old file or the new one. Blocks. Raises ``OSError``.

    ``sync``: the new content is on the disk before the old one is removed. ``opener``: of :func:`open`.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    made.unlink(missing_ok=True)  # an earlier process may have had the same number
    try:
        with open(made, "xb", opener=opener) as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
