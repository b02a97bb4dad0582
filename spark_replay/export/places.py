"""The places of a commit, in a file beside the table: ``_wormhole/places/RUN.json``.

Some table formats, such as Iceberg, list all commits in one file of metadata. With them every commit would write the
places of all earlier commits again. So the commit has only the name and the digest of this file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Final

from pyarrow import fs

from spark_replay.archive.storage import storage_errors
from spark_replay.export.state import ANEW, Exported, state_from_text, state_to_text
from wormhole.model.errors import ReplayError

__all__ = ["NOTES", "keep_places", "load_places", "places_path", "run_of", "write_note"]

NOTES: Final = "_wormhole"
"""The folder beside a table for the files of runs that are not part of the table."""
_FORMAT: Final = 2
"""Format 1 is the places themselves (:mod:`spark_replay.export.state`)."""


def places_path(root: str, run: str) -> str:
    """The file of a run, for the table whose folder is ``root``."""
    return f"{root}/{NOTES}/places/{run}.json"


def write_note(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
    """Write a small file beside a table, and make the folders above it."""
    with storage_errors("write", path):
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with filesystem.open_output_stream(path) as sink:
            sink.write(data)


def keep_places(filesystem: fs.FileSystem, root: str, state: Exported) -> str:
    """Write the file, before the commit that names it. Returns the text for the commit."""
    path, data = places_path(root, state.run), state_to_text(state).encode()
    write_note(filesystem, path, data)
    return json.dumps({"format": _FORMAT, "run": state.run, "sha256": hashlib.sha256(data).hexdigest()})


def load_places(filesystem: fs.FileSystem, root: str, text: str, where: str) -> Exported:
    """The state that a commit contains, read from its file if it names one. ``where``: for messages.

    Raises :class:`~wormhole.model.errors.ReplayError` for a state that cannot be read.
    """
    named = _named(text)
    if named is None:
        return state_from_text(text, where)
    run, digest = named
    path, data = places_path(root, run), b""
    with (
        storage_errors("read", path),
        contextlib.suppress(FileNotFoundError),
        filesystem.open_input_stream(path) as source,
    ):
        data = source.read()
    if hashlib.sha256(data).hexdigest() != digest:
        what = "is not the one that was written" if data else "is gone"
        raise ReplayError(f"the file with the places of {where} {what}: {path}", hint=f"restore it, or {ANEW}")
    return state_from_text(data.decode(), where)


def run_of(text: str, where: str) -> str:
    """The run that made a commit. Raises as :func:`load_places`."""
    named = _named(text)
    return state_from_text(text, where).run if named is None else named[0]


def _named(text: str) -> tuple[str, str] | None:
    """The run and the digest, if the commit names a file."""
    try:
        given = json.loads(text)
        if given["format"] != _FORMAT:
            return None
        run = str(given["run"])
        return (run, str(given["sha256"])) if run.isalnum() else None
    except (ValueError, KeyError, TypeError):
        return None
