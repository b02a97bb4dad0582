"""The operations that an archive needs of its storage, and the local disk as a storage.

Files are read, written and listed through pyarrow's file systems. Each storage adds two operations that these do not
have: to create a small file with its contents **if it does not exist** (a manifest's commit), and to make a file
durable, so that it outlasts a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
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
from wormhole.model.replace_file import make_file, replace_file, sync_to_disk

__all__ = ["LocalStorage", "Storage", "Stored", "storage_errors"]

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_PIECE: Final = 1 << 20
_MOST_BYTES: Final = 512 << 20
# Final refusals of an S3 service, as pyarrow and botocore name them. Its other errors may pass.
_REFUSED: Final = re.compile(
    r"(?i)access.?denied|invalid.?access.?key|signature.?does.?not.?match|forbidden|status 403"
)
_NO_BUCKET: Final = re.compile(r"(?i)no.?such.?bucket|bucket.{1,80}(not found|does not exist)")


@dataclass(frozen=True, slots=True)
class Stored:
    """A file in a folder. ``modified_s``: seconds since 1970; 0 if the storage does not report it."""

    name: str
    bytes: int
    modified_s: int


@contextlib.contextmanager
def storage_errors(doing: str, where: str) -> Iterator[None]:
    """Turn an ``OSError`` within the block into one of our errors, with the next step and who has to act.

    ``doing``: the operation, a verb. ``where``: its object.
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
    """The operations that every storage does through pyarrow. ``root``: the path within ``filesystem`` to which all
    names are relative.

    Every call blocks and raises :class:`~wormhole.model.errors.ArchiveUnavailable` or
    :class:`~wormhole.model.errors.ArchiveError`. A storage is safe for threads and may be pickled.
    """

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")

    def path(self, name: str) -> str:
        """The path within ``filesystem``."""
        return f"{self.root}/{name}" if name else self.root

    def make_root(self) -> None:  # noqa: B027 - a service has no folders
        """Make the root folder and the folders above it, if they do not exist."""

    @abstractmethod
    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Create the file, whole and durable, unless it exists. Returns whether it was created. Makes folders above it.

        Returns ``False`` also if it is unknown which of two writers was first. Then the stored file decides.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Write the file in one step. An existing file is replaced."""
        with storage_errors("write", self.path(name)), self.filesystem.open_output_stream(self.path(name)) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes | None:
        """The whole file; ``None`` if it does not exist."""
        try:
            with storage_errors("read", self.path(name)), self.filesystem.open_input_stream(self.path(name)) as stream:
                return _bounded(stream, self.path(name))
        except ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def files(self, folder: str) -> list[Stored]:
        """The files in the folder, by name; empty if the folder does not exist."""
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
        """Remove the file if it exists."""
        try:
            with storage_errors("delete", self.path(name)):
                self.filesystem.delete_file(self.path(name))
        except ArchiveError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def open_output(self, name: str) -> pa.NativeFile:
        """Begin a new file. Others may see it before it is complete."""
        with storage_errors("create", self.path(name)):
            return self.filesystem.open_output_stream(self.path(name))

    def open_input(self, name: str) -> pa.NativeFile:
        """Open a file for random access. Raises :class:`~wormhole.model.errors.ArchiveError` if it does not exist."""
        with storage_errors("read", self.path(name)):
            return self.filesystem.open_input_file(self.path(name))

    def settle(self, name: str) -> None:  # noqa: B027 - in a service closed files are durable
        """Make a closed file and its entry in the folder durable."""


def _bounded(stream: pa.NativeFile, where: str) -> bytes:
    """The content of a small file. Its size is checked, because others may have put a file of any size in its place."""
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
    """A folder on a local or mounted disk, which needs to support hard links.

    ``os.link`` creates a name for a complete file, and fails if the name exists. So only one of two writers succeeds,
    and after a crash there is a whole file or none.
    """

    def __init__(self, root: str) -> None:
        super().__init__(fs.LocalFileSystem(), str(Path(root).absolute()))

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[str]]:
        return LocalStorage, (self.root,)

    def make_root(self) -> None:
        """See :meth:`Storage.make_root`."""
        with storage_errors("create", self.root):
            private_folder(Path(self.root))
            sync_to_disk(Path(self.root).parent)

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """See :meth:`Storage.create_if_absent`."""
        path = Path(self.path(name))
        with storage_errors("write", str(path)):
            self._make_folder(path.parent)
            try:
                made = make_file(path, data, opener=private_opener)
            except OSError as error:
                if error.errno in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
                    raise ArchiveError(
                        f"{path.parent} is on a file system without hard links, which commits need: {error.strerror}",
                        hint="keep the archive on ext4, XFS, Btrfs, ZFS or NFS",
                        code="archive-misplaced",
                    ) from error
                raise
            if made:
                sync_to_disk(path.parent)
            return made

    def replace(self, name: str, data: bytes) -> None:
        """See :meth:`Storage.replace`."""
        path = Path(self.path(name))
        with storage_errors("write", str(path)):
            self._make_folder(path.parent)
            replace_file(path, data, opener=private_opener)
            sync_to_disk(path.parent)

    def open_output(self, name: str) -> pa.NativeFile:
        """See :meth:`Storage.open_output`."""
        path = Path(self.path(name))
        with storage_errors("create", str(path)):
            self._make_folder(path.parent)
            with open(path, "wb", opener=private_opener):
                pass  # else pyarrow, which opens it next, would create it with the mode that the umask leaves
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
            # Reading a pipe or a device of that name would block for ever.
            if not stat.S_ISREG(os.stat(self.path(name)).st_mode):
                raise ArchiveError(f"{self.path(name)} is no file", hint="remove it, and restore the file of that name")

    def _stay_inside(self, name: str) -> None:
        """Refuse a symbolic link in place of a folder of the archive: files outside it would be read and deleted."""
        folder = os.path.dirname(self.path(name))
        if os.path.realpath(folder) != os.path.normpath(
            os.path.join(os.path.realpath(self.root), os.path.dirname(name))
        ):
            raise ArchiveError(
                f"{folder} leads out of the archive by a symbolic link",
                hint="remove the link; only the archive's own folder may be one",
            )

    def _make_folder(self, folder: Path) -> None:
        """Make a folder, and those above it within the root. Each is durable before it is used.

        The folder above the archive has to exist, so that no archive begins in the place of a disk that is not mounted.
        Only a file in the root itself makes the root, so that writing does not continue in an archive that is gone.
        """
        if folder.is_dir():
            return
        root = Path(self.root)
        if folder != root and folder.parent != root:
            self._make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)  # not the folders above it
        sync_to_disk(folder.parent)

    def settle(self, name: str) -> None:
        """See :meth:`Storage.settle`."""
        path = Path(self.path(name))
        with storage_errors("write", str(path)):
            sync_to_disk(path)
            sync_to_disk(path.parent)
