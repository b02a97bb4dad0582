"""Checks whether this host can serve a log now: whether it has the database's disk, and where the log ends."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.files import check_database, live_files, newest_options, wal_directory
from datastores.rocksdb.log.scan import end_of
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.problem import Problem
from wormhole.ports.datastore import Standing

__all__ = ["standing"]

_ATTACH = "attach the disk with the database to this host"


def standing(path: Path, delivered: Collection[str]) -> Standing:
    """See :meth:`wormhole.ports.datastore.Datastore.standing`. A byte-for-byte copy counts as the same database."""
    try:
        check_database(path)
        log = wal_directory(path, newest_options(path))
        identity, end = _identity(path), _end(path, log)
    except SourceUnavailable as error:
        return Standing("", ready=False, problem=Problem(error.message, _ATTACH, code="copy-not-ready"))
    except UsageError as error:
        return Standing("", ready=False, problem=error.problem)
    except OSError as error:
        return Standing(
            "", ready=False, problem=Problem(f"{path} cannot be read: {error.strerror}", _ATTACH, code="copy-not-ready")
        )
    furthest = max((int(one) for one in delivered if one.isdecimal()), default=0)
    return Standing(identity, lacking=f"sequence numbers {end + 1} to {furthest}" if furthest > end else "")


def _identity(path: Path) -> str:
    try:
        return (path / "IDENTITY").read_text(encoding="ascii", errors="backslashreplace").strip()
    except FileNotFoundError:
        return ""


def _end(path: Path, log: Path) -> int:
    """The last sequence number in the tables or the log."""
    with tempfile.TemporaryDirectory(prefix="wormhole-standing-") as scratch:
        catalogue = FamilyCatalogue(path, Path(scratch) / "families.json")
        catalogue.refresh()
    return max(catalogue.last_sequence, end_of({number: file.path for number, file in live_files(log).items()}))
