"""Opens the storage that a configuration names."""

from __future__ import annotations

from urllib.parse import urlsplit

from spark_replay.archive.storage import LocalStorage, Storage
from wormhole.model.errors import UsageError

__all__ = ["open_storage"]


def open_storage(to: str) -> Storage:
    """The storage that ``[datasets.X.archive] to`` names: a folder, ``s3://bucket/folder`` or
    ``hdfs://host:port/folder``.

    Writes nothing. Raises :class:`~wormhole.model.errors.UsageError` for another scheme,
    :class:`~wormhole.model.errors.ArchiveUnavailable` and :class:`~wormhole.model.errors.ArchiveError`.
    """
    scheme = urlsplit(to).scheme if "://" in to else ""
    if not scheme:
        return LocalStorage(to)
    from spark_replay.archive.remote_storage import HdfsStorage, S3Storage

    if scheme == "s3":
        return S3Storage(to)
    if scheme == "hdfs":
        return HdfsStorage(to)
    raise UsageError(
        f"an archive cannot lie in {scheme}://", hint="use a folder, s3://bucket/folder or hdfs://host:port/folder"
    )
