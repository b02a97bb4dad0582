"""The archive of one dataset: reading manifests, and committing the next one by compare-and-set.

A commit has four steps, and a power cut may come between any two: the data file is complete and durable
(:meth:`NewFile.close`); where the manifest is to name a new checkpoint, that is created, whole and durable; then the
next manifest is created if absent, whole and durable (:meth:`ArchiveStore.commit`); only then does it count, and only
then may the archiver acknowledge. Before the third step nobody sees the file or the checkpoint, which are garbage; of
two writers one makes the step.

Everything blocks.
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
    is_summed,
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
    """A data file that is being written; it counts for nobody before a manifest names it.

    As a context manager it is closed at the end of the block, and given up when that ends with an exception.
    """

    def __init__(self, storage: Storage, shard: str, name: str) -> None:
        self._storage = storage
        self._relative = f"{data_folder(shard)}/{name}"
        self.name = name
        self.path = storage.path(self._relative)
        self.sink: pa.NativeFile = storage.open_output(self._relative)

    def close(self) -> int:
        """Make it complete and durable. Returns its bytes.

        Raises :class:`~wormhole.model.errors.ArchiveUnavailable` or :class:`~wormhole.model.errors.ArchiveError`; then
        it is not to be committed.
        """
        with storage_errors("write", self.path):
            if not self.sink.closed:
                self.sink.close()
            self._storage.settle(self._relative)
            return int(self._storage.filesystem.get_file_info(self.path).size)

    def abort(self) -> None:
        """Give it up and remove it; what cannot be removed is garbage. Raises nothing."""
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
        """Whose updates it holds."""
        return self.about.dataset

    @property
    def copy(self) -> str:
        """Which of the dataset's copies the archive is of; ``@failover``: those that serve one at a time."""
        return self.about.copy

    def shards(self) -> list[str]:
        """The shards of which a manifest was ever committed."""
        return [name for name in self.storage.folders() if self._versions(name)]

    def chosen(self, shards: Sequence[str]) -> list[str]:
        """These shards, all when empty.

        Raises :class:`~wormhole.model.errors.UsageError` for one of which nothing is archived.
        """
        known = self.shards()
        if unknown := sorted(set(shards) - set(known)):
            hint = f"choose one of: {', '.join(known) or 'none yet'}"
            raise UsageError(f"nothing is archived of shard {unknown[0]}", hint=hint, code="archive-missing")
        return sorted(set(shards)) or known

    def read(self, shard: str, *, settled: bool = False) -> Manifest | None:
        """The newest manifest, with every file; ``None``: nothing was archived of the shard. ``settled``: as of
        :meth:`head`.

        Raises :class:`~wormhole.model.errors.ArchiveError` for one that is damaged, of a newer release, or not this
        dataset's, or of which a checkpoint is gone or damaged, and :class:`~wormhole.model.errors.ArchiveUnavailable`.
        """
        head = self.head(shard, settled=settled)
        return None if head is None else self._whole(head)[0]

    def head(self, shard: str, *, settled: bool = False) -> Manifest | None:
        """As :meth:`read`, without the older files: one small file is read, however long the archive is.

        ``settled``: only when no power cut can take it back, for callers that report it as durable: its writer may have
        died between naming it and being sure.
        """
        version, data = self._newest(shard, settled=settled)
        if data is None:
            return None
        return self._checked(manifest_from_json(data, self._manifest_path(shard, version)), shard, version)

    def heads(self) -> dict[str, Manifest]:
        """The newest manifest of every shard, as :meth:`head` gives it. Raises as that."""
        return {shard: head for shard in self.shards() if (head := self.head(shard)) is not None}

    def manifests(self) -> dict[str, Manifest]:
        """The newest manifest of every shard. Raises as :meth:`read`."""
        return {shard: manifest for shard in self.shards() if (manifest := self.read(shard)) is not None}

    def _whole(self, head: Manifest) -> tuple[Manifest, list[Listed]]:
        """With every file; and the chunks that are stored."""
        chunks = [Listed(one.files, one, self._checkpoint(head, one)) for one in head.older]
        files = [entry for chunk in chunks for entry in chunk.files]
        return replace(head, older=(), files=(*files, *head.files)), chunks

    def _checkpoint(self, manifest: Manifest, checkpoint: Checkpoint) -> tuple[FileEntry, ...]:
        path = checkpoint_path(manifest.shard, checkpoint.name)
        return checkpoint_from_json(self.storage.read(path), checkpoint, manifest, self.storage.path(path))

    def sealed(self, shard: str) -> bool:
        """Whether the newest manifest has a checksum of its own, or there is none. Raises as :meth:`read`."""
        version, data = self._newest(shard)
        return data is None or is_summed(data, self._manifest_path(shard, version))

    def _manifest_path(self, shard: str, version: int) -> str:
        return self.storage.path(manifest_path(shard, version))

    def _newest(self, shard: str, *, settled: bool = False) -> tuple[int, bytes | None]:
        """Version and content of the newest manifest; ``None``: there never was one."""
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
            # So many commits since the listing that it was removed.
        raise ArchiveUnavailable(f"{self.storage.path(path)} is listed and cannot be found", shard=shard)

    def _checked(self, manifest: Manifest, shard: str, version: int) -> Manifest:
        found = (manifest.dataset, manifest.copy, manifest.shard, manifest.version)
        if found == (self.dataset, self.copy, shard, version):
            return manifest
        raise ArchiveError(
            f"{self._manifest_path(shard, version)} is of another place: it says dataset {manifest.dataset}, "
            f"copy {manifest.copy}, shard {manifest.shard}, version {manifest.version}",
            hint="somebody copied it here: remove it, or restore the folder from a backup",
            code="archive-misplaced",
        )

    def commit(self, manifest: Manifest) -> None:
        """Make ``manifest`` the shard's newest one, durably. Its files have to be closed before.

        Raises :class:`~wormhole.model.errors.ArchiveConflict` when somebody else made one of this version, and
        :class:`~wormhole.model.errors.ArchiveUnavailable` or :class:`~wormhole.model.errors.ArchiveError`; after these
        two it may have become the newest one all the same.
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
        # One who slept through many commits found its number free again, since old manifests are removed.
        if manifest.version < oldest:
            raise self._lost(manifest)

    def _lost(self, manifest: Manifest) -> ArchiveConflict:
        return ArchiveConflict(
            f"somebody else committed version {manifest.version} of the archive of {manifest.shard} first",
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
        """Commit what ``decide`` makes of the newest manifest, anew when somebody else is first. Returns the newest
        one, which is durable.

        ``decide`` gets ``None`` before the first commit, and may return what it got: nothing is to be done. Raises what
        it raises (so an archiver whose epoch is over ends there), :class:`~wormhole.model.errors.ArchiveConflict` when
        others were first ten times in a row, and what :meth:`read` and :meth:`commit` raise.
        """
        return self._changed(shard, decide, self._whole, pause)

    def change_newest(
        self,
        shard: str,
        decide: Callable[[Manifest | None], Manifest],
        *,
        pause: Callable[[float], object] = time.sleep,
    ) -> Manifest:
        """As :meth:`change`, for what adds files and touches none but the newest: ``decide`` gets the manifest as
        :meth:`head` does, and the cost does not grow with the archive.
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
                # Where somebody else is first, its checkpoints are garbage. They stay: the answer may be wrong.
                self.commit(self._stored(wanted, chunks))
            except ArchiveConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                pause(random.uniform(0, 0.02 * 2**attempt))
            else:
                return wanted
        raise AssertionError("unreachable")

    def _stored(self, wanted: Manifest, known: Sequence[Listed]) -> Manifest:
        """``wanted`` as it is to be stored: its checkpoints are durable. ``known``: those of the manifest before."""
        if wanted.older:
            chunks, rest = list(known), wanted.files
        else:
            chunks, rest = held_chunks(wanted.files, known)
        groups, rest = arranged(chunks, rest)
        older = [checkpoint for group in groups for checkpoint in self._checkpoints(wanted, group)]
        return replace(wanted, older=tuple(older), files=rest)

    def _checkpoints(self, manifest: Manifest, group: Sequence[Listed]) -> list[Checkpoint]:
        """One that lists all of these. Where one of them is lost each stays, or gets, one of its own: what a commit
        adds needs none of the others, and must not wait for them.
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
        """Whether it is there with these bytes, durably. An answer that got lost on its way makes a client ask again,
        and meet its own work.
        """
        return self.storage.create_if_absent(path, data) or self.storage.read(path) == data

    def checkpoints(self, shard: str) -> list[Stored]:
        """What lies in the shard's folder of checkpoints, named in a manifest or not."""
        return self.storage.files(checkpoint_folder(shard))

    def named_checkpoints(self, shard: str) -> set[str]:
        """The checkpoints that any manifest that is there names: an older one counts again where somebody removes the
        newer ones. Raises as :meth:`head` for the newest one; an older one that is damaged names nothing.
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
        """Remove a checkpoint, if it is there; only :mod:`spark_replay.archive.retention` knows that nobody reads it
        any more.
        """
        self.storage.delete(checkpoint_path(shard, name))

    def _versions(self, shard: str) -> list[int]:
        found = [version_of(one.name) for one in self.storage.files(manifest_folder(shard))]
        return sorted(one for one in found if one is not None)

    def data_path(self, shard: str, name: str) -> str:
        """The path of a data file within the storage's ``filesystem``."""
        return self.storage.path(f"{data_folder(shard)}/{name}")

    def create_data(self, shard: str, name: str) -> NewFile:
        """Begin a data file; ``name`` is to be one that no other writer takes."""
        return NewFile(self.storage, shard, name)

    def open_data(self, shard: str, name: str) -> pa.NativeFile:
        """Read a data file at random. Raises :class:`~wormhole.model.errors.ArchiveError` when it is not there."""
        return self.storage.open_input(f"{data_folder(shard)}/{name}")

    def data_files(self, shard: str) -> list[Stored]:
        """What lies in the shard's data folder, named in the manifest or not."""
        return self.storage.files(data_folder(shard))

    def delete_data(self, shard: str, name: str) -> None:
        """Remove a data file, if it is there; only :mod:`spark_replay.archive.retention` knows that nobody reads it any
        more.
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
    """The archive in ``to``, which has to be ``dataset``'s, and of its ``copy`` where one is given, or of one of the
    copies ``earlier``: the same archive before its copy became one of several.

    ``create``: an empty place becomes one (then ``copy`` has to be given), and the storage is tried for whether its
    compare-and-set works. Raises :class:`~wormhole.model.errors.UsageError` when there is none,
    :class:`~wormhole.model.errors.ArchiveError` for the archive of another dataset or copy, a newer release's, a folder
    with other things in it, and :class:`~wormhole.model.errors.ArchiveUnavailable`.
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
                f"{to}: the storage says that it created a file which was there: two archivers could overwrite each "
                "other's work"
            ),
            hint="use a storage with conditional writes: Amazon S3, MinIO, Ceph (Squid or later), a local disk, HDFS",
            code="archive-misplaced",
        )
    return ArchiveStore(storage, to, about)


def _refuse_foreign(storage: Storage, to: str) -> None:
    """A mistyped path must not fill somebody's home with an archive; nor may an archive that lost its archive.json
    begin anew.
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
