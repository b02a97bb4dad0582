"""Decides whether a database's directory still has the history that the publisher kept, or a restored copy.

Within one history three numbers only rise: the MANIFEST's number, its last sequence number, and the sequence numbers of
the WAL files. A restored copy has a lower one. But its owner may write until all three are higher while the publisher
does not run. Then two facts show the copy: the IDENTITY file is another file, and neither the newest WAL nor the newest
table of the last scan exists. The decisions are pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Evidence", "IdentityFile", "evidence_of", "first_too_low", "identity_file", "went_back"]

_TABLE: Final = re.compile(r"(\d+)\.sst")

IdentityFile = tuple[int, int, int]
"""Facts about the IDENTITY file: its inode, time of the last write and time of the inode's last change (ns since 1970);
zeros: no file.

A copy may get the inode number of the file that it replaces, and `cp -p` keeps the time of the last write. The time of
the last change of the inode cannot be set.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about a database from one scan, without the content of its WAL files; zeros: unknown.

    ``manifest``: the number of the present MANIFEST. ``sequence``: the greatest sequence number in it. ``table``: the
    number and the size of the newest table file.
    """

    manifest: int = 0
    sequence: int = 0
    identity: IdentityFile = (0, 0, 0)
    table: tuple[int, int] = (0, 0)

    def as_json(self) -> dict[str, Any]:
        """For a state file."""
        return {
            "manifest": self.manifest,
            "sequence": self.sequence,
            "identity": self.identity,
            "table": self.table,
        }

    @classmethod
    def from_json(cls, stored: object) -> Evidence:
        """Read from a state file. Missing or malformed values are unknown."""
        entry = stored if isinstance(stored, dict) else {}

        def number(value: object) -> int:
            return value if isinstance(value, int) else 0

        def numbers(value: object, count: int) -> list[int]:
            if not isinstance(value, list | tuple) or len(value) != count:
                return [0] * count
            return [number(one) for one in value]

        inode, written_ns, changed_ns = numbers(entry.get("identity"), 3)
        table, size = numbers(entry.get("table"), 2)
        return cls(
            number(entry.get("manifest")),
            number(entry.get("sequence")),
            (inode, written_ns, changed_ns),
            (table, size),
        )


def evidence_of(path: Path, manifest: int, sequence: int) -> Evidence:
    """The evidence in the database at ``path``. The caller has read its MANIFEST. Raises ``OSError``."""
    newest = max((int(match[1]) for name in os.listdir(path) if (match := _TABLE.fullmatch(name))), default=0)
    return Evidence(manifest, sequence, identity_file(path), (newest, _table_size(path, newest)))


def identity_file(path: Path) -> IdentityFile:
    """Facts about the IDENTITY file of the database at ``path``. Raises ``OSError``."""
    try:
        stat = (path / "IDENTITY").stat()
    except FileNotFoundError:
        return 0, 0, 0
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def went_back(
    path: Path, before: Evidence, now: Evidence, *, reached: Callable[[], int], wal_is_there: bool
) -> str | None:
    """Why ``now`` cannot be a later state of the history of ``before``; ``None``: it can. Raises ``OSError``.

    ``reached``: returns the greatest sequence number that was read from WAL files or is in a kept file; called only if
    needed. ``wal_is_there``: whether the newest WAL of the last scan exists with its whole content, which proves that
    no copy was restored.
    """
    if now.manifest and now.manifest < before.manifest:
        return f"MANIFEST {now.manifest} follows on MANIFEST {before.manifest}"
    if now.manifest and now.sequence < before.sequence:
        return f"the MANIFEST ends at sequence number {now.sequence}, it ended at {before.sequence}"
    if wal_is_there or not all(before.identity + now.identity) or now.identity == before.identity:
        return None
    number, size = before.table
    if number and _table_size(path, number) == size and reached() <= before.sequence:
        return None  # the newest table exists, and the tables held everything that was read or kept
    return (
        "the IDENTITY file was replaced while no publisher ran, and neither the newest WAL nor the newest table "
        "file of then is there: "
        "nothing proves that no older copy was restored"
    )


def first_too_low(
    numbers: Iterable[int], reached: tuple[int, int], first_sequence: Callable[[int], int | None]
) -> str | None:
    """Why a WAL after ``reached`` (number of a WAL, a sequence number in it) is of another history; ``None``: no WAL
    is."""
    for number in sorted(numbers):
        if number > reached[0]:
            first = first_sequence(number)
            if first is not None and first <= reached[1]:
                return f"WAL {number} begins at sequence number {first}, WAL {reached[0]} reached {reached[1]}"
    return None


def _table_size(path: Path, number: int) -> int:
    try:
        return (path / f"{number:06d}.sst").stat().st_size if number else 0
    except FileNotFoundError:
        return 0
