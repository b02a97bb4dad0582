"""Removes the files of killed runs, which no commit names.

Before a run writes data, it writes a note beside the table: ``_wormhole/RUN.json``, with the table's present version.
The run's data files are in the folder ``wormhole-RUN``. The commit of a run succeeds only on the noted version. So once
the table has another version, a run that has not committed never will, and its files may be deleted.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import Final

from pyarrow import fs

from spark_replay.archive.storage import storage_errors
from spark_replay.export.places import NOTES, places_path, write_note
from spark_replay.export.port import OpenTable

__all__ = ["NOTES", "ExportRun", "clean", "is_ours", "noted"]

_PREFIX: Final = "wormhole-"


def is_ours(name: str) -> bool:
    """Whether the name in a table's folder is that of a run's notes or files."""
    return name == NOTES or name.startswith(_PREFIX)


class ExportRun:
    """One attempt to commit. ``name``: random."""

    def __init__(self, table: OpenTable, version: str) -> None:
        self.name = secrets.token_hex(8)
        self._table = table
        self._version = version

    @property
    def folder(self) -> str:
        """The folder of the run's files, within the table's file system."""
        return _folder(self._table, self.name)

    def begin(self) -> None:
        """Note the run. Call it before the first file is written."""
        with storage_errors("write", self.folder):
            self._table.filesystem.create_dir(self.folder, recursive=True)
        note = json.dumps({"base": self._version}).encode()
        write_note(self._table.filesystem, _note(self._table, self.name), note)

    def committed(self) -> None:
        """Remove the note, after the commit."""
        _remove_note(self._table, self.name)

    def abandon(self) -> None:
        """Remove the files and the note of a run that did not commit and will not."""
        _remove_files(self._table, self.name)
        _remove_note(self._table, self.name)


def noted(filesystem: fs.FileSystem, root: str) -> dict[str, str]:
    """The unfinished runs of the table in ``root``, with the version on which each began."""
    folder = f"{root}/{NOTES}"
    found = {}
    with storage_errors("read", folder):
        for one in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
            if one.is_file and one.base_name.endswith(".json"):
                with (
                    contextlib.suppress(FileNotFoundError),
                    filesystem.open_input_stream(one.path) as source,
                ):
                    found[one.base_name.removesuffix(".json")] = _base(source.read())
    return found


def _base(note: bytes) -> str:
    try:
        return str(json.loads(note)["base"])
    except (ValueError, KeyError, TypeError):
        return ""  # the run was killed before it wrote anything else


def clean(table: OpenTable, version: str) -> list[str]:
    """Remove the files of killed runs of a table whose present version is ``version``. Returns their names."""
    cleaned = []
    for run, base in noted(table.filesystem, table.root).items():
        if base == version:
            continue  # the run may still be at work
        committed = table.committed(run, base)
        if committed is False:
            _remove_files(table, run)
            cleaned.append(run)
        _remove_note(table, run)
    return cleaned


def _folder(table: OpenTable, run: str) -> str:
    return "/".join(filter(None, (table.root, table.data, _PREFIX + run)))


def _note(table: OpenTable, run: str) -> str:
    return f"{table.root}/{NOTES}/{run}.json"


def _remove_files(table: OpenTable, run: str) -> None:
    places = places_path(table.root, run)
    with storage_errors("delete", places), contextlib.suppress(FileNotFoundError):
        table.filesystem.delete_file(places)
    with storage_errors("delete", _folder(table, run)), contextlib.suppress(FileNotFoundError):
        table.filesystem.delete_dir(_folder(table, run))


def _remove_note(table: OpenTable, run: str) -> None:
    with storage_errors("delete", _note(table, run)), contextlib.suppress(FileNotFoundError):
        table.filesystem.delete_file(_note(table, run))
