"""What an archive needs of its storage, and the local disk as one.

Reading, writing and listing go through pyarrow's file systems. Two things those cannot do, and each storage has its own
way of them: create a small file with its contents **if there is none** (a manifest's commit), and make sure that a
power cut takes nothing back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from wormhole.host.private_files import private_folder, private_opener
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, WormholeError

__all__ = ["LocalStorage", "Storage", "Stored", "storage_errors"]

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_PIECE: Final = 1 << 20
_MOST_BYTES: Final = 512 << 20
# What a service of S3 refuses for good, as pyarrow and botocore name it; anything else of it may pass.
_REFUSED: Final = re.compile(
    r"(?i)access.?denied|invalid.?access.?key|signature.?does.?not.?match|forbidden|status 403"
)
_NO_BUCKET: Final = re.compile(r"(?i)no.?such.?bucket|bucket.{1,80}(not found|does not exist)")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in a folder; ``modified_s``: seconds since 1970, 0 when the storage does not say."""

    name: str
    bytes: int
    modified_s: int


@contextlib.contextmanager
def storage_errors(doing: str, where: str) -> Iterator[None]:
    """An ``OSError`` within leaves as one of ours: what is being done (a verb) and where, whose move it is and the next
    step.
    """
    try:
        yield
    except OSError as error:
        raise _named(error, doing, where) from error


def _named(error: OSError, doing: str, where: str) -> WormholeError:
    text = f"cannot {doing} {where}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return ArchiveUnavailable(text, hint="make room there; nothing that was committed is touched")
    if _REFUSED.search(str(error)):
        return ArchiveError(text, hint="the credentials in use need the right to read, write and delete there")
    if error.errno in _NOT_ALLOWED:
        return ArchiveError(text, hint=f"user {_user()} needs the right to read, write and delete there")
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)) or _NO_BUCKET.search(str(error)):
        return ArchiveError(
            text, hint="see whether the disk is mounted and the folder above is there, or the bucket named rightly"
        )
    return ArchiveUnavailable(text, hint="see whether the disk or the service is well, then try again")


def _user() -> str:
    return f"{os.environ.get('USER', '')} ({os.getuid()})".strip() if hasattr(os, "getuid") else "that runs this"


class Storage(ABC):
    """What every storage does through pyarrow. ``root``: the path within ``filesystem``, which paths are relative to.

    Every call blocks and raises :class:`~wormhole.model.errors.ArchiveUnavailable` or
    :class:`~wormhole.model.errors.ArchiveError`. May be used by several threads, and pickled.
    """

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")

    def path(self, name: str) -> str:
        """The path within ``filesystem``."""
        return f"{self.root}/{name}" if name else self.root

    def make_root(self) -> None:  # noqa: B027 - a service has no folders
        """Make the folder that everything is in, and those above; it may be there."""

    @abstractmethod
    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Create the file, whole and durable, unless there is one: ``False``. Folders above come into being.

        ``False`` also where it is unknown which was first; then the stored object decides.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Write the file whole, whatever was there."""
        with storage_errors("write", self.path(name)), self.filesystem.open_output_stream(self.path(name)) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes | None:
        """The whole file; ``None``: there is none."""
        try:
            with storage_errors("read", self.path(name)), self.filesystem.open_input_stream(self.path(name)) as stream:
                return _bounded(stream, self.path(name))
        except ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def files(self, folder: str) -> list[Stored]:
        """What lies in the folder, by name; nothing when there is no such folder."""
        found = [one for one in self._listed(folder) if one.type == fs.FileType.File]
        return sorted(
            (Stored(one.base_name, one.size or 0, (one.mtime_ns or 0) // 10**9) for one in found),
            key=lambda one: one.name,
        )

    def folders(self) -> list[str]:
        """The folders in the root."""
        return sorted(one.base_name for one in self._listed("") if one.type == fs.FileType.Directory)

    def _listed(self, folder: str) -> list[Any]:
        with storage_errors("list", self.path(folder)):
            return list(self.filesystem.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True)))

    def delete(self, name: str) -> None:
        """Remove the file, if it is there."""
        try:
            with storage_errors("delete", self.path(name)):
                self.filesystem.delete_file(self.path(name))
        except ArchiveError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def open_output(self, name: str) -> pa.NativeFile:
        """Begin a new file; it may be seen before it is complete."""
        with storage_errors("create", self.path(name)):
            return self.filesystem.open_output_stream(self.path(name))

    def open_input(self, name: str) -> pa.NativeFile:
        """Read at random. Raises :class:`~wormhole.model.errors.ArchiveError` for what is not there."""
        with storage_errors("read", self.path(name)):
            return self.filesystem.open_input_file(self.path(name))

    def settle(self, name: str) -> None:  # noqa: B027 - a service keeps what was closed
        """Return when the file, closed before, and its being in its folder outlast a power cut."""


def _bounded(stream: pa.NativeFile, where: str) -> bytes:
    """All of a small file; what others put under its name may be of any size."""
    found = bytearray()
    while piece := stream.read(_PIECE):
        found += piece
        if len(found) > _MOST_BYTES:
            raise ArchiveError(
                f"{where} has more than {_MOST_BYTES >> 20} MiB",
                hint="remove it, and restore the file of that name from a backup",
            )
    return bytes(found)


class LocalStorage(Storage):
    """A folder of a disk of this host, or one that is mounted like one. It needs hard links.

    ``os.link`` creates a name for a complete file and fails when there is one: of two writers one gets it, at a crash
    there is a whole file or none.
    """

    def __init__(self, root: str) -> None:
        super().__init__(fs.LocalFileSystem(), str(Path(root).absolute()))

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[str]]:
        return LocalStorage, (self.root,)

    def make_root(self) -> None:
        """See :meth:`Storage.make_root`."""
        with storage_errors("create", self.root):
            private_folder(Path(self.root))
            _sync(Path(self.root).parent)

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """See :meth:`Storage.create_if_absent`."""
        path = Path(self.path(name))
        with storage_errors("write", str(path)):
            self._make_folder(path.parent)
            made = self._written(path, data)
            try:
                os.link(made, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
                    raise ArchiveError(
                        f"{path.parent} is on a file system without hard links, which commits need: {error.strerror}",
                        hint="keep the archive on ext4, XFS, Btrfs, ZFS or NFS",
                        code="archive-misplaced",
                    ) from error
                raise
            finally:
                made.unlink(missing_ok=True)
            _sync(path.parent)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """See :meth:`Storage.replace`."""
        path = Path(self.path(name))
        with storage_errors("write", str(path)):
            self._make_folder(path.parent)
            self._written(path, data).replace(path)
            _sync(path.parent)

    @staticmethod
    def _written(path: Path, data: bytes) -> Path:
        """A file beside ``path`` with the data, durable."""
        made = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            with open(made, "xb", opener=private_opener) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            made.unlink(missing_ok=True)
            raise
        return made

    def open_output(self, name: str) -> pa.NativeFile:
        """See :meth:`Storage.open_output`."""
        path = Path(self.path(name))
        with storage_errors("create", str(path)):
            self._make_folder(path.parent)
            with open(path, "wb", opener=private_opener):
                pass  # pyarrow, which opens it next, would make it with the mode that the umask leaves
        return super().open_output(name)

    def read(self, name: str) -> bytes | None:
        """See :meth:`Storage.read`."""
        try:
            self._check(name)
        except ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return super().read(name)

    def open_input(self, name: str) -> pa.NativeFile:
        """See :meth:`Storage.open_input`."""
        self._check(name)
        return super().open_input(name)

    def delete(self, name: str) -> None:
        """See :meth:`Storage.delete`."""
        self._stay_inside(name)
        super().delete(name)

    def _listed(self, folder: str) -> list[Any]:
        self._stay_inside(f"{folder}/x" if folder else "x")
        return super()._listed(folder)

    def _check(self, name: str) -> None:
        self._stay_inside(name)
        with storage_errors("read", self.path(name)):
            # A pipe or a device under that name would block for ever.
            if not stat.S_ISREG(os.stat(self.path(name)).st_mode):
                raise ArchiveError(f"{self.path(name)} is no file", hint="remove it, and restore the file of that name")

    def _stay_inside(self, name: str) -> None:
        """A link in the place of one of the archive's folders would have files deleted, and read, wherever it leads."""
        folder = os.path.dirname(self.path(name))
        if os.path.realpath(folder) != os.path.normpath(
            os.path.join(os.path.realpath(self.root), os.path.dirname(name))
        ):
            raise ArchiveError(
                f"{folder} leads out of the archive by a symbolic link",
                hint="remove the link; only the archive's own folder may be one",
            )

    def _make_folder(self, folder: Path) -> None:
        """Each new folder is durable in the one above before it is used. That above the archive has to be there: where
        a disk is not mounted, no archive begins in its place. Only a file in the root itself makes that: where an
        archive is gone, none goes on.
        """
        if folder.is_dir():
            return
        root = Path(self.root)
        if folder != root and folder.parent != root:
            self._make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)  # not those above it
        _sync(folder.parent)

    def settle(self, name: str) -> None:
        """See :meth:`Storage.settle`."""
        path = Path(self.path(name))
        with storage_errors("write", str(path)):
            _sync(path)
            _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
