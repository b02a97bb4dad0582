"""Writes a whole file in one step, and makes files and the list of a folder's files durable."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["make_file", "replace_file", "sync_to_disk"]

_Opener = Callable[[str, int], int]


def replace_file(path: Path, data: str | bytes, *, sync: bool = True, opener: _Opener | None = None) -> None:
    """Write ``data`` to ``path`` in one step: a reader sees the old file or the new one. Blocks. Raises ``OSError``.

    ``sync``: the new content is on the disk before the old one is removed. ``opener``: as for :func:`open`.
    """
    with _draft(path, data, opener, sync=sync) as made:
        made.replace(path)


def make_file(path: Path, data: str | bytes, *, opener: _Opener | None = None) -> bool:
    """Create the file ``path`` with ``data`` in one step. False if the file exists, which is then not changed. Blocks.

    The content is on the disk before the file exists. Raises ``OSError``, also on a file system without hard links.
    """
    with _draft(path, data, opener, sync=True) as made:
        try:
            os.link(made, path)
        except FileExistsError:
            return False
    return True


def sync_to_disk(path: Path) -> None:
    """Make the content of a file, or the list of a folder's files, durable. Blocks. Raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _draft(path: Path, data: str | bytes, opener: _Opener | None, *, sync: bool) -> Iterator[Path]:
    """A file with ``data`` beside ``path``, which is removed at the end.

    Its name is random, because processes of several hosts may write to one folder.
    """
    made = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(made, "xb", opener=opener) as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        yield made
    finally:
        made.unlink(missing_ok=True)
