"""The archive of one dataset: reading manifests, and committing the next one by compare-and-set.

A commit has four steps, and a power cut may happen between any two:

1. The data file is made complete and durable (:meth:`NewFile.close`).
2. If the manifest needs a new checkpoint, this is created, whole and durable.
3. The next manifest is created if absent, whole and durable (:meth:`ArchiveStore.commit`). From now on it is valid.
4. The archiver acknowledges.

Before the third step no reader sees the file or the checkpoint, which are garbage. Of two writers only one succeeds in
the third step.

All calls block.
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final

import pyarrow as pa

from spark_replay.archive.checkpoints import Listed, arranged, held_chunks, joined
from spark_replay.archive.layout import (
    ABOUT,
    KEPT_VERSIONS,
    About,
    about_from_json,
    about_to_json,
    checkpoint_folder,
    checkpoint_path,
    data_folder,
    manifest_folder,
    manifest_path,
    version_of,
)
from spark_replay.archive.manifest import (
    Checkpoint,
    FileEntry,
    Manifest,
    checkpoint_from_json,
    checkpoint_of,
    checkpoint_to_json,
    manifest_from_json,
    manifest_to_json,
)
from spark_replay.archive.open_storage import open_storage
from spark_replay.archive.storage import Storage, Stored, storage_errors
from wormhole.config import FAILOVER, Config
from wormhole.model.errors import (
    ArchiveConflict,
    ArchiveError,
    ArchiveUnavailable,
    ConfigError,
    UsageError,
    WormholeError,
)

__all__ = ["ArchiveStore", "NewFile", "open_store", "store_of"]

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10


class NewFile(contextlib.AbstractContextManager["NewFile"]):
    """A data file that is being written. It is not part of the archive before a manifest names it.

    As a context manager it is closed at the end of the block, or aborted if the block ends with an exception.
    """

    def __init__(self, storage: Storage, shard: str, name: str) -> None:
        self._storage = storage
        self._relative = f"{data_folder(shard)}/{name}"
        self.name = name
        self.path = storage.path(self._relative)
        self.sink: pa.NativeFile = storage.open_output(self._relative)

    def close(self) -> int:
        """Make the file complete and durable. Returns its size in bytes.

        Raises :class:`~wormhole.model.errors.ArchiveUnavailable` or :class:`~wormhole.model.errors.ArchiveError`. Then
        the file must not be committed.
        """
        with storage_errors("write", self.path):
            if not self.sink.closed:
                self.sink.close()
            self._storage.settle(self._relative)
            return int(self._storage.filesystem.get_file_info(self.path).size)

    def abort(self) -> None:
        """Abort and remove the file. If it cannot be removed it is garbage. Raises nothing."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self.sink.close()
        with contextlib.suppress(WormholeError):
            self._storage.delete(self._relative)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.close()
        except BaseException:
            self.abort()
            raise


class ArchiveStore:
    """See the module. Safe for threads; may be pickled. ``to``: as configured, without secrets."""

    def __init__(self, storage: Storage, to: str, about: About) -> None:
        self.storage = storage
        self.to = to
        self.about = about

    @property
    def dataset(self) -> str:
        """The dataset whose updates the archive holds."""
        return self.about.dataset

    @property
    def copy(self) -> str:
        """The copy of the dataset that is archived. ``@failover``: the copies that serve one at a time."""
        return self.about.copy

    def shards(self) -> list[str]:
        """The shards that have a manifest."""
        return [name for name in self.storage.folders() if self._versions(name)]

    def chosen(self, shards: Sequence[str]) -> list[str]:
        """These shards; all if ``shards`` is empty.

        Raises :class:`~wormhole.model.errors.UsageError` for a shard of which nothing is archived.
        """
        known = self.shards()
        if unknown := sorted(set(shards) - set(known)):
            hint = f"choose one of: {', '.join(known) or 'none yet'}"
            raise UsageError(f"nothing is archived of shard {unknown[0]}", hint=hint, code="archive-missing")
        return sorted(set(shards)) or known

    def read(self, shard: str, *, settled: bool = False) -> Manifest | None:
        """The newest manifest, with every file; ``None`` if nothing was archived of the shard. ``settled``: see
        :meth:`head`.

        Raises :class:`~wormhole.model.errors.ArchiveUnavailable`, and :class:`~wormhole.model.errors.ArchiveError` for
        a manifest that is damaged, of a newer release or of another dataset, or whose checkpoint is gone or damaged.
        """
        head = self.head(shard, settled=settled)
        return None if head is None else self._whole(head)[0]

    def head(self, shard: str, *, settled: bool = False) -> Manifest | None:
        """As :meth:`read`, without the older files. It reads one small file, however long the archive is.

        ``settled``: make the manifest durable first, for callers that report it as durable. Its writer may have died
        after it created the manifest, and before it made it durable.
        """
        version, data = self._newest(shard, settled=settled)
        if data is None:
            return None
        return self._checked(manifest_from_json(data, self._manifest_path(shard, version)), shard, version)

    def heads(self) -> dict[str, Manifest]:
        """The newest manifest of every shard, as :meth:`head` returns it. Raises as :meth:`head`."""
        return {shard: head for shard in self.shards() if (head := self.head(shard)) is not None}

    def manifests(self) -> dict[str, Manifest]:
        """The newest manifest of every shard. Raises as :meth:`read`."""
        return {shard: manifest for shard in self.shards() if (manifest := self.read(shard)) is not None}

    def _whole(self, head: Manifest) -> tuple[Manifest, list[Listed]]:
        """The manifest with every file, and its stored chunks."""
        chunks = [Listed(one.files, one, self._checkpoint(head, one)) for one in head.older]
        files = [entry for chunk in chunks for entry in chunk.files]
        return replace(head, older=(), files=(*files, *head.files)), chunks

    def _checkpoint(self, manifest: Manifest, checkpoint: Checkpoint) -> tuple[FileEntry, ...]:
        path = checkpoint_path(manifest.shard, checkpoint.name)
        return checkpoint_from_json(self.storage.read(path), checkpoint, manifest, self.storage.path(path))

    def _manifest_path(self, shard: str, version: int) -> str:
        return self.storage.path(manifest_path(shard, version))

    def _newest(self, shard: str, *, settled: bool = False) -> tuple[int, bytes | None]:
        """The version and the content of the newest manifest; 0 and ``None`` if there never was one."""
        for _ in range(_ATTEMPTS):
            versions = self._versions(shard)
            if not versions:
                if self.storage.read(ABOUT) is None:
                    raise ArchiveUnavailable(
                        f"the archive in {self.to} is gone",
                        hint="see whether the disk is mounted",
                        code="archive-missing",
                    )
                return 0, None
            path = manifest_path(shard, versions[-1])
            if settled:
                self.storage.settle(path)
            data = self.storage.read(path)
            if data is not None:
                return versions[-1], data
            # It was removed: there were many commits after the listing.
        raise ArchiveUnavailable(f"{self.storage.path(path)} is listed and cannot be found", shard=shard)

    def _checked(self, manifest: Manifest, shard: str, version: int) -> Manifest:
        found = (manifest.dataset, manifest.copy, manifest.shard, manifest.version)
        if found == (self.dataset, self.copy, shard, version):
            return manifest
        raise ArchiveError(
            f"{self._manifest_path(shard, version)} is of another place: it names dataset {manifest.dataset}, "
            f"copy {manifest.copy}, shard {manifest.shard}, version {manifest.version}",
            hint="it was copied here: remove it, or restore the folder from a backup",
            code="archive-misplaced",
        )

    def commit(self, manifest: Manifest) -> None:
        """Make ``manifest`` the shard's newest one, durably. Its files have to be closed before.

        Raises :class:`~wormhole.model.errors.ArchiveConflict` if another writer created this version. Raises
        :class:`~wormhole.model.errors.ArchiveUnavailable` or :class:`~wormhole.model.errors.ArchiveError`; after these
        two the manifest may be the newest one all the same.
        """
        path, data = manifest_path(manifest.shard, manifest.version), manifest_to_json(manifest)
        if not self._created(path, data):
            raise self._lost(manifest)
        versions = self._versions(manifest.shard)
        if versions[-1:] == [manifest.version] and manifest.version > 1 and manifest.version - 1 not in versions:
            with contextlib.suppress(WormholeError):
                self.storage.delete(path)
            raise ArchiveUnavailable(
                f"the manifests of {manifest.shard} before version {manifest.version} are gone from {self.to}",
                hint="see whether the disk is mounted, and whether something else removes files there",
            )
        oldest = (versions[-1] if versions else 0) - KEPT_VERSIONS + 1
        for old in versions:
            if old < oldest:
                with contextlib.suppress(WormholeError):  # the next commit tries again
                    self.storage.delete(manifest_path(manifest.shard, old))
        # Old manifests are removed. So a writer that was suspended during many commits finds its number free again.
        if manifest.version < oldest:
            raise self._lost(manifest)

    def _lost(self, manifest: Manifest) -> ArchiveConflict:
        return ArchiveConflict(
            f"another writer committed version {manifest.version} of the archive of {manifest.shard} first",
            shard=manifest.shard,
            hint="see which other archivers or compactions run; one archiver per shard is enough",
        )

    def change(
        self,
        shard: str,
        decide: Callable[[Manifest | None], Manifest],
        *,
        pause: Callable[[float], object] = time.sleep,
    ) -> Manifest:
        """Commit the manifest that ``decide`` makes from the newest one. Returns the newest manifest, which is durable.

        ``decide`` is called again if another writer commits first. It gets ``None`` before the first commit. If it
        returns its argument, nothing is committed.

        Raises the errors of ``decide`` (which ends an archiver of an old epoch),
        :class:`~wormhole.model.errors.ArchiveConflict` if others were first ten times in a row, and what :meth:`read`
        and :meth:`commit` raise.
        """
        return self._changed(shard, decide, self._whole, pause)

    def change_newest(
        self,
        shard: str,
        decide: Callable[[Manifest | None], Manifest],
        *,
        pause: Callable[[float], object] = time.sleep,
    ) -> Manifest:
        """As :meth:`change`, for changes that add files and modify only the newest one.

        ``decide`` gets the manifest as :meth:`head` returns it, and the cost does not grow with the archive.
        """
        return self._changed(shard, decide, _as_named, pause)

    def _changed(
        self,
        shard: str,
        decide: Callable[[Manifest | None], Manifest],
        opened: Callable[[Manifest], tuple[Manifest, list[Listed]]],
        pause: Callable[[float], object],
    ) -> Manifest:
        for attempt in range(_ATTEMPTS):
            head = self.head(shard, settled=True)
            present, chunks = (None, []) if head is None else opened(head)
            wanted = decide(present)
            if wanted is present:
                return wanted
            if wanted.version != (present.version if present else 0) + 1:
                raise ValueError(f"version {wanted.version} of {shard} does not follow {present and present.version}")
            if wanted.older != (present.older if present else ()):
                raise ValueError(f"version {wanted.version} of {shard} has other checkpoints than the one before")
            try:
                # If another writer is first, the new checkpoints are garbage. They are kept: the answer may be wrong.
                self.commit(self._stored(wanted, chunks))
            except ArchiveConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                pause(random.uniform(0, 0.02 * 2**attempt))
            else:
                return wanted
        raise AssertionError("unreachable")

    def _stored(self, wanted: Manifest, known: Sequence[Listed]) -> Manifest:
        """``wanted`` in its stored form, after its checkpoints are durable. ``known``: the previous manifest's
        chunks.
        """
        if wanted.older:
            chunks, rest = list(known), wanted.files
        else:
            chunks, rest = held_chunks(wanted.files, known)
        groups, rest = arranged(chunks, rest)
        older = [checkpoint for group in groups for checkpoint in self._checkpoints(wanted, group)]
        return replace(wanted, older=tuple(older), files=rest)

    def _checkpoints(self, manifest: Manifest, group: Sequence[Listed]) -> list[Checkpoint]:
        """One checkpoint that lists all files of ``group``.

        If a stored checkpoint of the group cannot be read, each chunk has its own. A commit needs no older files, so
        the loss of one must not stop it.
        """
        if len(group) == 1:
            return [group[0].stored or self._new_checkpoint(manifest, group[0].files)]
        try:
            files = joined(group, lambda one: self._checkpoint(manifest, one))
        except ArchiveError as error:
            _log.error("%s is archived on, and a part of its archive cannot be read: %s", manifest.shard, error)
            return [checkpoint for one in group for checkpoint in self._checkpoints(manifest, (one,))]
        return [self._new_checkpoint(manifest, files)]

    def _new_checkpoint(self, manifest: Manifest, files: tuple[FileEntry, ...]) -> Checkpoint:
        name = f"{manifest.version:020}-{secrets.token_hex(8)}.json"
        path, data = checkpoint_path(manifest.shard, name), checkpoint_to_json(manifest, files)
        if not self._created(path, data):
            raise ArchiveUnavailable(f"{self.storage.path(path)} is there with other contents", hint="try again")
        return checkpoint_of(name, files, data)

    def _created(self, path: str, data: bytes) -> bool:
        """Create a file. Returns whether it exists with these bytes, durably.

        If an answer is lost, the client repeats the request and finds the file that it created itself.
        """
        return self.storage.create_if_absent(path, data) or self.storage.read(path) == data

    def checkpoints(self, shard: str) -> list[Stored]:
        """The files in the shard's folder of checkpoints, whether a manifest names them or not."""
        return self.storage.files(checkpoint_folder(shard))

    def named_checkpoints(self, shard: str) -> set[str]:
        """The checkpoints that any existing manifest names. An older one becomes valid again if the newer are removed.

        Raises as :meth:`head` for the newest manifest. A damaged older manifest names nothing.
        """
        head = self.head(shard)
        found = {one.name for one in head.older} if head is not None else set()
        for version in self._versions(shard):
            data = self.storage.read(manifest_path(shard, version))
            if data is not None:
                with contextlib.suppress(ArchiveError):
                    older = manifest_from_json(data, self._manifest_path(shard, version)).older
                    found |= {one.name for one in older}
        return found

    def delete_checkpoint(self, shard: str, name: str) -> None:
        """Remove a checkpoint if it exists. Only :mod:`spark_replay.archive.retention` may call this: it knows that no
        process reads the checkpoint any more.
        """
        self.storage.delete(checkpoint_path(shard, name))

    def _versions(self, shard: str) -> list[int]:
        found = [version_of(one.name) for one in self.storage.files(manifest_folder(shard))]
        return sorted(one for one in found if one is not None)

    def data_path(self, shard: str, name: str) -> str:
        """The path of a data file within the storage's ``filesystem``."""
        return self.storage.path(f"{data_folder(shard)}/{name}")

    def create_data(self, shard: str, name: str) -> NewFile:
        """Begin a data file. No other writer may use the same ``name``."""
        return NewFile(self.storage, shard, name)

    def open_data(self, shard: str, name: str) -> pa.NativeFile:
        """Open a data file for random access. Raises :class:`~wormhole.model.errors.ArchiveError` if it is missing."""
        return self.storage.open_input(f"{data_folder(shard)}/{name}")

    def data_files(self, shard: str) -> list[Stored]:
        """The files in the shard's data folder, whether the manifest names them or not."""
        return self.storage.files(data_folder(shard))

    def delete_data(self, shard: str, name: str) -> None:
        """Remove a data file if it exists. Only :mod:`spark_replay.archive.retention` knows that no process reads a
        file any more.
        """
        self.storage.delete(f"{data_folder(shard)}/{name}")


def _as_named(head: Manifest) -> tuple[Manifest, list[Listed]]:
    return head, [Listed(one.files, one) for one in head.older]


def open_store(
    to: str,
    dataset: str,
    *,
    copy: str = "",
    earlier: Collection[str] = (),
    create: bool = False,
    now: Callable[[], float] = time.time,
) -> ArchiveStore:
    """Open the archive in ``to``, which has to be the archive of ``dataset`` and, if given, of its ``copy``.

    ``earlier``: names that the archive may have for the copy instead, from the time before it became one of several.
    ``create``: create the archive if the folder is empty (then ``copy`` has to be given), and test whether the
    storage's compare-and-set works.

    Raises :class:`~wormhole.model.errors.UsageError` if there is no archive,
    :class:`~wormhole.model.errors.ArchiveError` for the archive of another dataset or copy or of a newer release, or a
    folder with other files, and :class:`~wormhole.model.errors.ArchiveUnavailable`.
    """
    storage = open_storage(to)
    data = storage.read(ABOUT)
    if data is None and create:
        _refuse_foreign(storage, to)
        storage.create_if_absent(ABOUT, about_to_json(About(dataset, copy, int(now()))))
        data = storage.read(ABOUT)
    if data is None:
        raise UsageError(
            f"there is no archive in {to}",
            hint="`wormholectl archive run` begins one; or see whether the disk is mounted",
            code="archive-missing",
        )
    about = about_from_json(data, storage.path(ABOUT))
    if about.dataset != dataset or (copy and about.copy not in {copy, *earlier}):
        raise ArchiveError(
            f"{to} is the archive of dataset {about.dataset}, copy {about.copy}; what is wanted is {dataset}"
            + (f", copy {copy}" if copy else ""),
            hint=f"give every copy that is archived a folder of its own in [datasets.{dataset}.archive] to",
            code="archive-misplaced",
        )
    if create and storage.create_if_absent(ABOUT, data):
        raise ArchiveError(
            (
                f"{to}: the storage reports that it created a file which was there: two archivers could overwrite each "
                "other's work"
            ),
            hint="use a storage with conditional writes: Amazon S3, MinIO, Ceph (Squid or later), a local disk, HDFS",
            code="archive-misplaced",
        )
    return ArchiveStore(storage, to, about)


def _refuse_foreign(storage: Storage, to: str) -> None:
    """Refuse a folder that is not empty.

    An archive must not be created in a home folder because of a mistyped path, nor over an archive that lost its
    archive.json.
    """
    entries = storage.folders() + [one.name for one in storage.files("")]
    found = sorted({name for name in entries if not name.startswith(".") and name != "lost+found"})
    if found:
        raise ArchiveError(
            f"{to} is no archive and not empty: it holds {', '.join(found[:3])}{', …' if len(found) > 3 else ''}",
            hint=f"name an empty folder; if this was an archive, restore its {ABOUT} from a backup",
            code="archive-misplaced",
        )


def store_of(config: Config, dataset: str, *, create: bool = False) -> ArchiveStore:
    """The archive that the configuration names for ``dataset``.

    Raises :class:`~wormhole.model.errors.ConfigError` when it names none, else as :func:`open_store`.
    """
    settings = config.datasets.get(dataset)
    if settings is None:
        names = ", ".join(sorted(config.datasets)) or "none"
        raise ConfigError(f"no dataset {dataset!r} is configured", hint=f"choose one of: {names}")
    if settings.archive is None:
        raise ConfigError(
            f"dataset {dataset} has no archive",
            hint=f'add [datasets.{dataset}.archive] with to = "/folder/of/its/own"',
            code="archive-missing",
        )
    application = config.applications.get(settings.archive.application)
    copy = application.from_copy if application and application.from_copy else ""
    if not copy and settings.failover is not None:
        return open_store(settings.archive.to, dataset, copy=FAILOVER, earlier=settings.failover.copies, create=create)
    if not copy and len(settings.copies) == 1:
        copy = next(iter(settings.copies))
    return open_store(settings.archive.to, dataset, copy=copy, create=create)
