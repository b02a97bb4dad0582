"""The manifest of one shard: the list of its valid files, and the datamarker up to which they reach. Pure.

A manifest is never changed. A commit writes the next version, and fails if that version exists (``store``). Readers use
only the newest one. A file that no manifest names is garbage. The files are a chain: each begins at the datamarker
where the previous one ends.

The stored manifest lists the newest files itself, and names checkpoints that list the older ones (``checkpoints``). So
a commit does not write the whole list again.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spark_replay.archive.checksums import Blocks
from spark_replay.archive.columns import check_format
from spark_replay.archive.json_checksum import check_checksum, with_checksum
from wormhole.model.errors import ArchiveError, EpochRefused, PositionError, ProtocolError
from wormhole.model.json_input import read_json
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = [
    "MANIFEST_FORMAT",
    "Checkpoint",
    "FileEntry",
    "KnownLoss",
    "Manifest",
    "checkpoint_from_json",
    "checkpoint_of",
    "checkpoint_to_json",
    "manifest_from_json",
    "manifest_to_json",
    "marker_from_text",
    "marker_to_text",
]


_NOT_OURS: Final = (ValueError, KeyError, TypeError, AttributeError, ProtocolError, PositionError)
"""The errors that content which is not a manifest causes when it is read."""

MANIFEST_FORMAT: Final = 2
"""The version of the format of manifests and checkpoints."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file. ``name``: within the shard's data folder. ``begin`` and ``end``: the datamarkers between which it
    has every update.

    ``first_us`` and ``last_us``: least and greatest commit time (microseconds since 1970; 0: no update has one).
    ``ops``: rows by operation. ``key_changes``: rows that change their key. ``partial``: rows that may lack columns.
    ``too_large``: rows that came without values because of their size. ``tables``: rows by table. ``schemas``: table by
    schema id (16 hex digits), for every schema that a row refers to; two schemas of one table mean that its layout
    changed in this file. ``hash``: sum over the updates (:mod:`wormhole.wire.tally`). ``footer_crc``: see
    :func:`~spark_replay.archive.footer.crc_of_footer`. ``merged``: the number of files that it was merged from; 1 for a
    file of the archiver. ``raw``: bytes of its rows in memory. ``blocks``: checksums of all its bytes.
    """

    name: str
    rows: int
    bytes: int
    begin: Datamarker
    end: Datamarker
    first_us: int
    last_us: int
    ops: Mapping[str, int]
    tables: Mapping[str, int]
    schemas: Mapping[str, str] = field(default_factory=dict)
    key_changes: int = 0
    partial: int = 0
    too_large: int = 0
    hash: int = 0
    footer_crc: int = 0
    merged: int = 1
    raw: int = 0
    blocks: Blocks = field(default_factory=Blocks)


@dataclass(frozen=True, slots=True)
class KnownLoss:
    """A range that the log had lost before it was archived, and whose loss an operator accepted.

    It is between the end of the previous file and ``resume``.
    """

    resume: Datamarker
    message: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored list of adjacent files, as a manifest names it. It is never changed either.

    ``name``: within the shard's folder of checkpoints. ``files``: the number of files in the list. ``bytes`` and
    ``crc32``: the size and the CRC-32 of the stored list. ``begin`` and ``end``: the places between which its files
    are, for people.
    """

    name: str
    files: int
    bytes: int
    crc32: int
    begin: LogPosition
    end: LogPosition


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module. ``version`` rises by one at every commit. ``epoch``: the epoch of the flow in which the archiver
    wrote last.

    ``begin`` and ``end``: where the chain begins and ends now. ``whole``: the chain begins at the beginning of the
    datastore's log, so nothing was ever written to the shard before it. It is false from the time when retention
    removes the first file. ``older``: checkpoints with the files before ``files``, if these were not read; empty in a
    manifest from :meth:`~spark_replay.archive.store.ArchiveStore.read`.
    """

    dataset: str
    shard: str
    version: int
    epoch: int
    begin: Datamarker
    end: Datamarker
    whole: bool
    files: tuple[FileEntry, ...] = ()
    losses: tuple[KnownLoss, ...] = ()
    copy: str = ""
    log: str = ""
    older: tuple[Checkpoint, ...] = ()

    def appended(self, entry: FileEntry, epoch: int) -> Manifest:
        """The next version, with one more file.

        Raises :class:`~wormhole.model.errors.ArchiveError` for a file that does not begin at ``end``.
        """
        if entry.begin.order != self.end.order:
            raise ArchiveError(
                f"{entry.name} begins at {entry.begin.order}, the archive of {self.shard} ends at {self.end.order}",
                shard=self.shard,
                hint="another archiver may have written meanwhile: read the manifest again",
            )
        return replace(self, version=self.version + 1, epoch=epoch, end=entry.end, files=(*self.files, entry))

    def claimed(self, epoch: int) -> Manifest:
        """The next version, in which the archiver of ``epoch`` owns the shard. Raises
        :class:`~wormhole.model.errors.EpochRefused` if a newer archiver owns it."""
        if epoch < self.epoch:
            raise EpochRefused(
                f"{self.shard} is archived in epoch {self.epoch}; this archiver has it in epoch {epoch}",
                held_epoch=self.epoch,
                shard=self.shard,
                hint="nothing where the shard was just assigned: the publisher assigns it again in a later epoch; "
                "else see which other archiver writes here",
                code="owner-elsewhere",
            )
        return replace(self, version=self.version + 1, epoch=epoch)

    def extended(self, end: Datamarker, epoch: int) -> Manifest:
        """The next version, in which the newest file reaches to ``end``: no update came for the shard after its end.

        The newest file has to end where the chain ends, and not after ``end``.
        """
        if not self.files or self.files[-1].end.order != self.end.order:
            raise ValueError(f"no file of {self.shard} ends at {self.end.order}")
        if end.order < self.end.order:
            raise ValueError(f"the archive of {self.shard} ends at {self.end.order} and cannot go back to {end.order}")
        last = replace(self.files[-1], end=end)
        return replace(self, version=self.version + 1, epoch=epoch, end=end, files=(*self.files[:-1], last))

    def swapped(self, old: Collection[str], new: FileEntry) -> Manifest:
        """The next version, in which ``new`` replaces the adjacent files ``old``. It has the same rows.

        Raises :class:`~wormhole.model.errors.ArchiveError` if the manifest no longer names them, or if ``new`` covers
        another range.
        """
        self._check_read()
        names = [entry.name for entry in self.files]
        gone = sorted(set(old) - set(names))
        if gone or not old:
            raise ArchiveError(
                f"{', '.join(gone) or 'no file'} of {self.shard} cannot be replaced: it is not in the manifest",
                shard=self.shard,
            )
        first = min(names.index(name) for name in old)
        replaced = self.files[first : first + len(old)]
        if {entry.name for entry in replaced} != set(old):
            raise ArchiveError(f"the files to replace in {self.shard} do not adjoin", shard=self.shard)
        if (replaced[0].begin, replaced[-1].end, sum(entry.rows for entry in replaced)) != (
            new.begin,
            new.end,
            new.rows,
        ):
            raise ArchiveError(f"{new.name} does not hold what it is to replace in {self.shard}", shard=self.shard)
        files = (*self.files[:first], new, *self.files[first + len(old) :])
        return replace(self, version=self.version + 1, files=files)

    def without_first(self, count: int) -> Manifest:
        """The next version, without the ``count`` oldest files. The archive begins later and is no longer whole."""
        self._check_read()
        if not 0 < count <= len(self.files):
            raise ValueError(f"{count} of {len(self.files)} files")
        kept = self.files[count:]
        begin = kept[0].begin if kept else self.end
        losses = tuple(loss for loss in self.losses if loss.resume.order > begin.order)
        return replace(self, version=self.version + 1, begin=begin, files=kept, losses=losses, whole=False)

    def gap_accepted(self, loss: KnownLoss, epoch: int) -> Manifest:
        """The next version, which continues at ``loss.resume`` and has no updates of the lost range."""
        return replace(
            self, version=self.version + 1, epoch=epoch, end=loss.resume, losses=(*self.losses, loss), whole=False
        )

    def _check_read(self) -> None:
        if self.older:
            raise ValueError(f"the older files of {self.shard} were not read")


def marker_to_text(marker: Datamarker) -> str:
    """A datamarker as base64 of its stored form."""
    return base64.b64encode(marker_to_bytes(marker)).decode()


def marker_from_text(text: str) -> Datamarker:
    """Inverse of :func:`marker_to_text`. Raises ``ValueError`` or :class:`~wormhole.model.errors.ProtocolError`."""
    return marker_from_bytes(base64.b64decode(text, validate=True))


def manifest_to_json(manifest: Manifest) -> bytes:
    """The stored form: JSON that begins with a checksum of itself. For people it has places as text beside the
    markers."""
    given = {
        "format": MANIFEST_FORMAT,
        "dataset": manifest.dataset,
        "copy": manifest.copy,
        "log": manifest.log,
        "shard": manifest.shard,
        "version": manifest.version,
        "epoch": manifest.epoch,
        "begin": marker_to_text(manifest.begin),
        "begin_place": str(manifest.begin.order),
        "end": marker_to_text(manifest.end),
        "end_place": str(manifest.end.order),
        "whole": manifest.whole,
        "losses": [{"resume": marker_to_text(loss.resume), "message": loss.message} for loss in manifest.losses],
        "checkpoints": [_checkpoint_to_json(one) for one in manifest.older],
        "files": [_entry_to_json(entry) for entry in manifest.files],
    }
    return with_checksum(given, separators=(",", ":"))


def _check(data: bytes, where: str) -> None:
    """Raises :class:`~wormhole.model.errors.ArchiveError` if the manifest differs from its checksum. ``where``: the
    path, for the message.
    """
    try:
        check_checksum(data)
    except ValueError as error:
        raise ArchiveError(
            f"{where} is damaged: {error}",
            hint="restore the file from a backup; without one move it away: the version before it, one number lower, "
            "counts then, and lacks what the last commit added",
        ) from error


def _checkpoint_to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "files": checkpoint.files,
        "bytes": checkpoint.bytes,
        "crc32": checkpoint.crc32,
        "begin_place": str(checkpoint.begin),
        "end_place": str(checkpoint.end),
    }


def checkpoint_to_json(manifest: Manifest, files: Sequence[FileEntry]) -> bytes:
    """The stored form of a checkpoint with adjacent files of ``manifest``."""
    given = {
        "format": MANIFEST_FORMAT,
        "dataset": manifest.dataset,
        "copy": manifest.copy,
        "shard": manifest.shard,
        "files": [_entry_to_json(entry) for entry in files],
    }
    return json.dumps(given, separators=(",", ":")).encode()


def checkpoint_of(name: str, files: Sequence[FileEntry], data: bytes) -> Checkpoint:
    """The checkpoint of ``files`` as a manifest names it. ``data``: its stored form."""
    return Checkpoint(name, len(files), len(data), zlib.crc32(data), files[0].begin.order, files[-1].end.order)


def checkpoint_from_json(
    data: bytes | None, checkpoint: Checkpoint, manifest: Manifest, where: str
) -> tuple[FileEntry, ...]:
    """The files in a checkpoint that ``manifest`` names. ``data``: the stored form; ``None``: it does not exist.
    ``where``: the path, for the message.

    Raises :class:`~wormhole.model.errors.ArchiveError` if the checkpoint is gone, or its bytes differ from the written
    ones.
    """
    if data is None:
        raise _unreadable(checkpoint, manifest, f"{where} is gone")
    if (len(data), zlib.crc32(data)) != (checkpoint.bytes, checkpoint.crc32):
        raise _unreadable(checkpoint, manifest, f"{where} is damaged, or another file: its checksum differs")
    try:
        given: dict[str, Any] = read_json(data)
        check_format(given["format"], where, MANIFEST_FORMAT)
        whose = (given["dataset"], given["copy"], given["shard"])
        if whose != (manifest.dataset, manifest.copy, manifest.shard):
            raise ValueError("it is of dataset {}, copy {}, shard {}".format(*whose))
        files = tuple(_entries_from_json(given["files"]))
        if len(files) != checkpoint.files:
            raise ValueError(f"it lists {len(files)} files")
        return files
    except ArchiveError:
        raise
    except _NOT_OURS as error:
        raise _unreadable(checkpoint, manifest, f"{where} is no checkpoint: {type(error).__name__} {error}") from error


def _unreadable(checkpoint: Checkpoint, manifest: Manifest, problem: str) -> ArchiveError:
    return ArchiveError(
        f"{problem}; manifest {manifest.version} of {manifest.shard} names it for {checkpoint.files:,} files between "
        f"{checkpoint.begin} and {checkpoint.end}",
        shard=manifest.shard,
        hint="restore the file from a backup; the archiver goes on without it, and what reads these files cannot",
    )


def _entry_to_json(entry: FileEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "rows": entry.rows,
        "bytes": entry.bytes,
        "begin": marker_to_text(entry.begin),
        "end": marker_to_text(entry.end),
        "first_us": entry.first_us,
        "last_us": entry.last_us,
        "ops": dict(entry.ops),
        "tables": dict(entry.tables),
        "schemas": dict(entry.schemas),
        "key_changes": entry.key_changes,
        "partial": entry.partial,
        "too_large": entry.too_large,
        "hash": entry.hash,
        "footer_crc": entry.footer_crc,
        "merged": entry.merged,
        "raw": entry.raw,
        "block_bytes": entry.blocks.size,
        "block_crcs": base64.b64encode(entry.blocks.crcs).decode(),
    }


def manifest_from_json(data: bytes, where: str) -> Manifest:
    """Inverse of :func:`manifest_to_json`. ``where``: the path, for the message.

    Raises :class:`~wormhole.model.errors.ArchiveError` for bytes that are not a manifest, are damaged,
    or were written by a newer release.
    """
    try:
        given: dict[str, Any] = read_json(data)
        _check(data, where)
        check_format(given["format"], where, MANIFEST_FORMAT)
        older = tuple(_checkpoint_from_json(one) for one in given["checkpoints"])
        files = tuple(_entries_from_json(given["files"]))
        if older and not files:
            raise ValueError("it names checkpoints, and no newest file")
        return Manifest(
            dataset=_text(given["dataset"]),
            copy=_text(given["copy"]),
            log=_text(given["log"]),
            shard=_text(given["shard"]),
            version=_number(given["version"]),
            epoch=_number(given["epoch"]),
            begin=marker_from_text(given["begin"]),
            end=marker_from_text(given["end"]),
            whole=given["whole"] is True,
            losses=tuple(KnownLoss(marker_from_text(one["resume"]), _text(one["message"])) for one in given["losses"]),
            files=files,
            older=older,
        )
    except ArchiveError:
        raise
    except _NOT_OURS as error:
        raise ArchiveError(
            f"{where} is no manifest: {type(error).__name__} {error}",
            hint="restore the file from a backup; the version before it, one number lower, may still stand beside it",
        ) from error


def _checkpoint_from_json(given: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        name=_name(given["name"]),
        files=_number(given["files"], least=1),
        bytes=_number(given["bytes"]),
        crc32=_number(given["crc32"]),
        begin=LogPosition.parse(_text(given["begin_place"])),
        end=LogPosition.parse(_text(given["end_place"])),
    )


def _entries_from_json(given: Sequence[Mapping[str, Any]]) -> Iterator[FileEntry]:
    """The entries. There may be hundreds of thousands, so adjacent entries share objects.

    These are the datamarker at which one ends and the next begins, and equal schemas.
    """
    text, marker = "", None
    listed: object = object()
    schemas: Mapping[str, str] = {}
    for one in given:
        begin = marker if marker is not None and one["begin"] == text else marker_from_text(one["begin"])
        text = one["end"]
        marker = marker_from_text(text)
        if one["schemas"] != listed:
            listed = one["schemas"]
            schemas = {f"{int(id_, 16):016x}": _text(table) for id_, table in one["schemas"].items()}
        yield _entry_from_json(one, begin, marker, schemas)


def _entry_from_json(
    given: Mapping[str, Any], begin: Datamarker, end: Datamarker, schemas: Mapping[str, str]
) -> FileEntry:
    return FileEntry(
        name=_name(given["name"]),
        rows=_number(given["rows"]),
        bytes=_number(given["bytes"]),
        begin=begin,
        end=end,
        first_us=_number(given["first_us"], least=-(1 << 63)),
        last_us=_number(given["last_us"], least=-(1 << 63)),
        ops={_text(op): _number(rows) for op, rows in given["ops"].items()},
        tables={_text(table): _number(rows) for table, rows in given["tables"].items()},
        schemas=schemas,
        key_changes=_number(given["key_changes"]),
        partial=_number(given["partial"]),
        too_large=_number(given["too_large"]),
        hash=_number(given["hash"]),
        footer_crc=_number(given["footer_crc"]),
        merged=_number(given["merged"]),
        raw=_number(given["raw"]),
        blocks=_blocks(given),
    )


def _blocks(given: Mapping[str, Any]) -> Blocks:
    found = Blocks(_number(given["block_bytes"], least=1), base64.b64decode(given["block_crcs"], validate=True))
    if not found.cover(given["bytes"]):
        raise ValueError(f"the checksums of {given['name']} are not of {given['bytes']} bytes")
    return found


def _name(given: object) -> str:
    """The name of a file, if it stays inside its folder in any storage."""
    name = _text(given)
    if "/" in name or "\\" in name or name.startswith(".") or not name.isprintable() or not name:
        raise ValueError(f"{name!r} is no name of a file")
    return name


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is no text")
    return given


def _number(given: object, least: int = 0) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given < 1 << 64:
        raise ValueError(f"{given!r} is no number that can be here")
    return given
