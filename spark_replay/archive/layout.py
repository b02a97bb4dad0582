"""The paths of an archive. Pure.

::

    archive.json                          the dataset and the copy of the archive
    SHARD/manifests/00000000000000000042.json   a manifest; the one with the highest number is valid
    SHARD/checkpoints/NAME.json           lists of older files; manifests name them (``checkpoints``)
    SHARD/data/NAME.parquet               the updates
    SHARD/garbage.json                    data files and checkpoints that no manifest names, and since when
                                          (``retention``)
    newest_snapshot.json                  the newest snapshot, for retention (``newest_snapshot``)

Other files there are not part of the archive.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from spark_replay.archive.columns import FORMAT, check_format
from wormhole.model.errors import ArchiveError
from wormhole.model.json_input import read_json

__all__ = [
    "ABOUT",
    "KEPT_VERSIONS",
    "About",
    "about_from_json",
    "about_to_json",
    "checkpoint_folder",
    "checkpoint_path",
    "data_folder",
    "garbage_path",
    "manifest_folder",
    "manifest_path",
    "version_of",
]

ABOUT: Final = "archive.json"
KEPT_VERSIONS: Final = 20
"""The number of manifests of a shard that are kept. A commit deletes older ones."""

_MANIFEST: Final = re.compile(r"(\d{20})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class About:
    """The dataset and the copy of the archive.

    ``copy``: places of one copy have no meaning in another. For copies that serve one at a time it is ``@failover``, or
    the copy that served before there were several.
    """

    dataset: str
    copy: str
    created_s: int


def about_to_json(about: About) -> bytes:
    """The stored form."""
    given = {"format": FORMAT, "dataset": about.dataset, "copy": about.copy, "created": about.created_s}
    return json.dumps(given).encode()


def about_from_json(data: bytes, where: str) -> About:
    """Inverse of :func:`about_to_json`. ``where``: its path, for messages.

    Raises :class:`~wormhole.model.errors.ArchiveError` for other bytes, and for the bytes of a newer release.
    """
    try:
        given = read_json(data)
        check_format(given["format"], where)
        return About(str(given["dataset"]), str(given["copy"]), int(given["created"]))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ArchiveError(
            f"{where} does not name the dataset of the archive: {type(error).__name__} {error}",
            hint="restore it from a backup, or name another folder in [datasets.X.archive]",
        ) from error


def data_folder(shard: str) -> str:
    """The folder of the shard's data files. Like all paths here it is relative to the archive's root."""
    return f"{shard}/data"


def manifest_folder(shard: str) -> str:
    """The folder of the shard's manifests."""
    return f"{shard}/manifests"


def manifest_path(shard: str, version: int) -> str:
    """The path of the manifest of this version. The number has leading zeros, so that names sort as numbers do."""
    return f"{manifest_folder(shard)}/{version:020}.json"


def checkpoint_folder(shard: str) -> str:
    """The folder of the checkpoints of the shard's manifests."""
    return f"{shard}/checkpoints"


def checkpoint_path(shard: str, name: str) -> str:
    """The path of the checkpoint of this name."""
    return f"{checkpoint_folder(shard)}/{name}"


def garbage_path(shard: str) -> str:
    """The path of the list of data files and checkpoints that no manifest names."""
    return f"{shard}/garbage.json"


def version_of(name: str) -> int | None:
    """The version of the manifest with this file name; ``None`` if it is not the name of a manifest."""
    found = _MANIFEST.fullmatch(name)
    return int(found[1]) if found else None
