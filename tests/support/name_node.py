"""What HDFS does, over a local folder, for tests that start no HDFS: it answers as hdfs-native's client does.

A name that is taken is refused, to one mover after the other. ``tests/system/test_archive_hdfs.py`` asks a real one.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from pyarrow import fs

from spark_replay.archive.hdfs_files import HdfsFiles


class NameNode:
    """A client of hdfs-native, as far as an archive uses it. ``refuses``: what it raises for these paths, once each.
    ``synced``: how often each file was synced.
    """

    def __init__(self) -> None:
        self.refuses: dict[str, BaseException] = {}
        self.synced: dict[str, int] = {}
        self._lock = threading.Lock()

    def files(self) -> fs.FileSystem:
        """It as a file system of pyarrow."""
        return fs.PyFileSystem(HdfsFiles(self, "hdfs://name:9000"))

    def _asked(self, path: str) -> Path:
        if path in self.refuses:
            raise self.refuses.pop(path)
        return Path(path)

    def get_file_info(self, path: str) -> Any:
        return _status(self._asked(path))

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        assert not recursive
        yield from map(_status, self._asked(path).iterdir())

    def mkdirs(self, path: str, permission: int = 0o755, create_parent: bool = False) -> None:
        self._asked(path).mkdir(parents=create_parent, exist_ok=True)

    def delete(self, path: str, recursive: bool = False) -> bool:
        found = self._asked(path)
        if not found.exists():
            return False
        if found.is_dir():
            assert recursive
            shutil.rmtree(found)
        else:
            found.unlink()
        return True

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        with self._lock:
            if not overwrite and Path(target).exists():
                raise FileExistsError(f"rename destination {target} already exists")
            self._asked(source).rename(target)
            if target in self.refuses:  # it was done, and the answer got lost
                raise self.refuses.pop(target)

    def read(self, path: str) -> Any:
        return _Read(self._asked(path).open("rb"))

    def create(self, path: str, options: Any) -> Any:
        found = self._asked(path)
        found.parent.mkdir(parents=True, exist_ok=True)
        return _Written(found.open("wb"), path, self.synced)


def _status(path: Path) -> Any:
    found = path.stat()
    return SimpleNamespace(
        path=str(path), isdir=path.is_dir(), length=found.st_size, modification_time=int(found.st_mtime * 1000)
    )


class _Read:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)

    def __len__(self) -> int:
        return self._size

    def read_range(self, offset: int, size: int) -> bytes:
        assert offset + size <= self._size, "the client ends the process there"
        self._file.seek(offset)
        return self._file.read(size)

    def __del__(self) -> None:
        self._file.close()


class _Written:
    def __init__(self, file: BinaryIO, path: str, synced: dict[str, int]) -> None:
        self._file = file
        self._path = path
        self._synced = synced

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def hsync(self) -> None:
        self._synced[self._path] = self._synced.get(self._path, 0) + 1

    def close(self) -> None:
        self._file.close()
