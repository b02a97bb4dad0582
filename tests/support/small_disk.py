"""A file system of its own, so small that it can be filled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["remount", "small_disk"]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """``folder``, as a file system in memory of ``size`` (``64k``). Skips the test where nothing may be mounted."""
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here: root can")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change the options of the file system: ``size=1m``, ``ro``, ``rw``."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
