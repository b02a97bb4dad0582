"""Lists the present column families of a database, and the reasons why another program cannot read some of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from datastores.rocksdb.decode.manifest import ManifestDecoder, VersionEdit
from datastores.rocksdb.decode.options import DatabaseOptions
from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["BYTEWISE", "REVERSED", "Family", "LiveFamilies", "refusals", "with_settings"]

BYTEWISE: Final = "leveldb.BytewiseComparator"
REVERSED: Final = "rocksdb.ReverseBytewiseComparator"
_DEFAULT: Final = "default"
_CHUNK: Final = 1 << 20

# RocksDB's own merge operators. An OPTIONS file alone is enough to create them.
_OPERATORS: Final = frozenset(
    {"", "nullptr", "uint64add", "UInt64AddOperator", "stringappend", "StringAppendOperator", "put", "PutOperator"}
    | {"max", "MaxOperator", "bytesxor", "BytesXOR"}
)


@dataclass(frozen=True, slots=True)
class Family:
    """A column family: its number, name and comparator's name. ``again``: another family had the same name earlier."""

    number: int
    name: str
    comparator: str
    again: bool = False


class LiveFamilies:
    """Follows the MANIFEST of the database in ``path``.

    ``manifest``: the name of the MANIFEST's file. The file stays open, so that no other file gets its inode.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.manifest = ""
        self._file: BinaryIO | None = None
        self._decoder = ManifestDecoder()
        self._names: dict[int, str] = {}
        self._dropped: set[str] = set()
        self._comparators: dict[int, str] = {}
        self._files: dict[int, set[int]] = {}

    def files(self, families: Iterable[Family]) -> set[int]:
        """Numbers of the table files that these families had at the last `refresh`."""
        return set().union(*(self._files.get(family.number, ()) for family in families))

    def refresh(self) -> dict[str, Family]:
        """Read the MANIFEST's new edits. Returns the present families by name. Raises :class:`SourceUnavailable`."""
        try:
            name = (self._path / "CURRENT").read_text(encoding="ascii", errors="replace").strip()
            if name != self.manifest or self._is_replaced():
                self._open(name)
            assert self._file is not None
            while data := self._file.read(_CHUNK):
                for edit in self._decoder.feed(data):
                    self._apply(edit)
        except (OSError, DecodeError) as error:
            self.close()
            raise SourceUnavailable(
                f"the column families of {self._path} cannot be read from its MANIFEST: {error}",
                hint="let the publisher's user read the database's files; a retry follows",
                code="table-unreadable",
            ) from error
        return {
            name: Family(number, name, self._comparators.get(number, BYTEWISE), name in self._dropped)
            for number, name in self._names.items()
        }

    def close(self) -> None:
        """Close the MANIFEST. The next `refresh` reads it from the beginning."""
        if self._file is not None:
            self._file.close()
        self._file, self.manifest = None, ""

    def _is_replaced(self) -> bool:
        assert self._file is not None
        there = (self._path / self.manifest).stat()
        return (there.st_dev, there.st_ino) != _inode(self._file)

    def _open(self, name: str) -> None:
        if not name.startswith("MANIFEST-") or "/" in name:
            raise DecodeError(f"CURRENT names {name[:80]!r}, which is no MANIFEST")
        self.close()
        self._file = (self._path / name).open("rb", buffering=0)
        self._decoder, self._names, self._comparators = ManifestDecoder(), {0: _DEFAULT}, {}
        self._dropped, self._files = set(), {}
        self.manifest = name

    def _apply(self, edit: VersionEdit) -> None:
        if edit.added is not None:
            self._names[edit.family] = edit.added
        if edit.comparator is not None:
            self._comparators[edit.family] = edit.comparator
        if edit.new_files or edit.deleted_files:
            files = self._files.setdefault(edit.family, set())
            files.difference_update(edit.deleted_files)
            files.update(edit.new_files)
        if edit.dropped and edit.family in self._names:
            self._dropped.add(self._names.pop(edit.family))
            self._files.pop(edit.family, None)


def _inode(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def with_settings(families: dict[str, Family], options: DatabaseOptions) -> dict[str, Family]:
    """The families with the comparators of the OPTIONS file. The MANIFEST of a new database lacks that of
    ``default``."""
    return {
        name: replace(family, comparator=options.families.get(name, {}).get("comparator", family.comparator))
        for name, family in families.items()
    }


def refusals(families: dict[str, Family], options: DatabaseOptions) -> dict[str, Problem]:
    """The reasons why families cannot be read, by name. Readable families are left out."""
    if options.db.get("recycle_log_file_num", "0") != "0":
        recycled = Problem(
            "recycle_log_file_num is set: a second instance of the database hangs at a WAL file that is overwritten",
            "open the database with recycle_log_file_num=0",
            code="table-unreadable",
        )
        return dict.fromkeys(families, recycled)
    default = families.get(_DEFAULT)
    if default is not None and (problem := _refusal(default, options)):
        # No instance can be opened without the default family.
        others = Problem(
            f"no family can be read, because {_DEFAULT} cannot: {problem.text}",
            problem.hint,
            code="table-unreadable",
        )
        return {name: problem if name == _DEFAULT else others for name in families}
    return {name: problem for name, family in families.items() if (problem := _refusal(family, options))}


def _refusal(family: Family, options: DatabaseOptions) -> Problem:
    next_step = "write its rows once again from the program that owns the database, so that the log has them"
    if family.comparator not in {BYTEWISE, REVERSED}:
        return Problem(
            f"its keys are ordered by {family.comparator}, which only their own program has",
            next_step,
            code="table-unreadable",
        )
    if family.again:
        return Problem(
            "it was dropped and made again since its program opened the database, and RocksDB lets no second instance "
            "read it until then",
            "restart the program that owns the database",
            code="table-unreadable",
        )
    settings = options.families.get(family.name, {})
    operator = settings.get("merge_operator", "")
    if operator.strip("{}").split(";")[0].removeprefix("id=").partition(":")[0] not in _OPERATORS:
        return Problem(
            f"its values are merged by {operator}, which only their own program has", next_step, code="table-unreadable"
        )
    if settings.get("enable_blob_files") == "true":
        return Problem(
            "its values are in blob files, which RocksDB lets no second instance read",
            next_step,
            code="table-unreadable",
        )
    return NO_PROBLEM
