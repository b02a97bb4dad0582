"""HDFS as a file system of pyarrow, by hdfs-native: a client in Rust, which needs neither Java nor a Hadoop
installation.

Two things differ from pyarrow's own file system for HDFS. A move fails if the target exists; the name node decides this
atomically. Closing a file first brings its content to the disks of its data nodes (``hsync``).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow import fs

from wormhole.model.errors import UsageError

__all__ = ["HdfsFiles", "connect"]

_T = TypeVar("_T")

_DENIED: Final = "AccessControlException"
_WAITS: Final = {"dfs.client.failover.max.attempts": "4"}
"""Waits 15 s for a name node that is away or fails over. The default would be three minutes without a message."""
_BLOCK_BYTES: Final = 1 << 30
"""The size of a block. Closing a file makes its last block durable. A file of at most this size has only one block."""
_NO_ROOM: Final = ("QuotaExceededException", "DSQuotaExceeded")


def connect(url: str) -> fs.FileSystem:
    """The file system of ``hdfs://host:port``, or of ``hdfs://nameservice`` in Hadoop's configuration
    (``HADOOP_CONF_DIR``).

    Raises :class:`~wormhole.model.errors.UsageError` if hdfs-native is not installed, and ``OSError``.
    """
    try:
        from hdfs_native import Client
    except ModuleNotFoundError as error:
        raise UsageError(
            "an archive in HDFS needs hdfs-native, which is not installed",
            hint="pip install 'wormhole-pubsub[hdfs]'",
            code="extra-missing",
        ) from error
    with _os_errors(url):
        return fs.PyFileSystem(HdfsFiles(Client(url, dict(_WAITS)), url))


@contextlib.contextmanager
def _os_errors(where: str) -> Iterator[None]:
    """Turn errors that the client raises for answers of nodes into ``OSError``."""
    try:
        yield
    except (RuntimeError, ValueError, NotImplementedError) as error:
        text = str(error)
        if _DENIED in text:
            raise PermissionError(errno.EACCES, text, where) from error
        if any(one in text for one in _NO_ROOM):
            raise OSError(errno.EDQUOT, text, where) from error
        raise OSError(errno.EIO, text, where) from error


class HdfsFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """The file operations of an archive, for :class:`pyarrow.fs.PyFileSystem`. ``url``: what ``client`` connects to."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsFiles) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def get_type_name(self) -> str:
        """See pyarrow."""
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        """See pyarrow."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        """See pyarrow."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return _info_of(self._asked(path, self._client.get_file_info))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """See pyarrow."""
        try:
            found = self._asked(
                selector.base_dir, lambda path: list(self._client.list_status(path, selector.recursive))
            )
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        return [_info_of(one) for one in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        """See pyarrow."""
        self._asked(path, lambda at: self._client.mkdirs(at, create_parent=recursive))

    def delete_dir(self, path: str) -> None:
        """See pyarrow."""
        self._asked(path, lambda at: self._client.delete(at, True))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """See pyarrow. No archive uses it."""
        raise NotImplementedError(path)

    def delete_root_dir_contents(self) -> None:
        """See pyarrow. No archive uses it."""
        raise NotImplementedError("/")

    def delete_file(self, path: str) -> None:
        """See pyarrow."""
        if not self._asked(path, self._client.delete):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)

    def move(self, src: str, dest: str) -> None:
        """Move a file. Raises ``FileExistsError`` if ``dest`` exists; pyarrow's own file system would replace it."""
        self._asked(src, lambda path: self._client.rename(path, dest, False))

    def move_over(self, src: str, dest: str) -> None:
        """Replace ``dest`` with ``src``. Each reader of ``dest`` finds a whole file, the former one or the new one."""
        self._asked(src, lambda path: self._client.rename(path, dest, True))

    def copy_file(self, src: str, dest: str) -> None:
        """See pyarrow. No archive uses it."""
        raise NotImplementedError(src, dest)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """See pyarrow."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """See pyarrow."""
        return pa.PythonFile(_Reader(self._asked(path, self._client.read), path), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """See pyarrow. An existing file is replaced, and missing folders above it are created."""
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=True, create_parent=True, block_size=_BLOCK_BYTES)
        return pa.PythonFile(_Writer(self._asked(path, lambda at: self._client.create(at, options)), path), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """See pyarrow. No archive uses it."""
        raise NotImplementedError(path)

    @staticmethod
    def _asked(path: str, call: Callable[[str], _T]) -> _T:
        with _os_errors(path):
            return call(path)


def _info_of(status: Any) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    size = None if status.isdir else status.length
    return fs.FileInfo(status.path, kind, size=size, mtime_ns=status.modification_time * 1_000_000)


class _Reader:
    """A file to read, as :class:`pyarrow.PythonFile` needs it."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._path = path
        self._size = len(file)
        self._at = 0
        self.closed = False

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        size = left if size < 0 else min(size, left)  # the client ends the process when it reads after the end
        if not size:
            return b""
        with _os_errors(self._path):
            found = bytes(self._file.read_range(self._at, size))
        self._at += len(found)
        return found

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class _Writer:
    """A file that is written from its beginning to its end. It is durable when it is closed."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._path = path
        self._at = 0
        self.closed = False

    def write(self, data: Any) -> int:
        piece = memoryview(data)
        with _os_errors(self._path):
            self._file.write(bytes(piece))
        self._at += piece.nbytes
        return piece.nbytes

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Does nothing: :meth:`close` makes the file durable."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        with _os_errors(self._path):
            if self._at:
                self._file.hsync()
            self._file.close()
