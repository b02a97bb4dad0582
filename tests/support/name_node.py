"""What HDFS does when something is moved, over a local folder: there is no HDFS here.

As `FileSystem.rename` of Hadoop is specified: into a folder that is there, one mover after the other; and as pyarrow's
`move` for HDFS, which replaces a file by a file.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from pyarrow import fs


class NameNode:
    """A file system of pyarrow, as far as an archive uses it."""

    def __init__(self) -> None:
        self._local = fs.LocalFileSystem()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def open_output_stream(self, path: str) -> Any:
        """HDFS makes the folders above."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return self._local.open_output_stream(path)

    def move(self, source: str, target: str) -> None:
        """One at a time."""
        with self._lock:
            actual = Path(target, Path(source).name) if Path(target).is_dir() else Path(target)
            if actual.exists() and not (actual.is_file() and Path(source).is_file()):
                raise OSError(f"HDFS rename failed: {actual} is there")
            Path(source).rename(actual)
