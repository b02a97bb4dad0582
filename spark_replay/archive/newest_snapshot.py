"""The newest snapshot that the next one can be made from, noted in the archive.

Retention keeps the updates that the next one needs. The note is ``newest_snapshot.json`` in the archive's root. Without
it no snapshot is known. The snapshot itself is elsewhere, and may have been deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_replay.archive.columns import FORMAT, check_format
from spark_replay.archive.json_checksum import check_checksum, with_checksum
from spark_replay.archive.manifest import Manifest
from spark_replay.archive.store import ArchiveStore
from wormhole.model.errors import ArchiveError, PositionError
from wormhole.model.json_input import read_json
from wormhole.model.position import LogPosition

__all__ = ["NOTE", "NewestSnapshot", "continued_at", "needed_from", "note_snapshot", "noted_snapshot"]

NOTE: Final = "newest_snapshot.json"


@dataclass(frozen=True, slots=True)
class NewestSnapshot:
    """``to``: its folder or URL. ``created``: its time, ISO 8601. ``places``: by shard, where the archive continues."""

    to: str
    created: str
    places: Mapping[str, LogPosition]


def noted_snapshot(store: ArchiveStore) -> NewestSnapshot | None:
    """The newest snapshot; ``None`` if none is known.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a damaged note, and
    :class:`~wormhole.model.errors.ArchiveUnavailable`.
    """
    data = store.storage.read(NOTE)
    if data is None:
        return None
    where = store.storage.path(NOTE)
    try:
        given = read_json(data)
        check_checksum(data)
        check_format(given["format"], where)
        places = {str(shard): LogPosition.parse(place) for shard, place in given["places"].items()}
        return NewestSnapshot(str(given["to"]), str(given["created"]), places)
    except (ValueError, KeyError, TypeError, AttributeError, PositionError) as error:
        raise ArchiveError(
            f"{where} is damaged: {type(error).__name__} {error}",
            hint="remove it: the next `wormholectl snapshot` writes it anew. Until then `archive expire` does not know "
            "which updates the next snapshot needs",
        ) from error


def note_snapshot(store: ArchiveStore, made: NewestSnapshot, manifests: Mapping[str, Manifest]) -> None:
    """Note ``made`` as the newest snapshot, unless the noted one can be continued and ends later in some shard.

    If two jobs do this at the same time, either note may stay. ``manifests``: the manifests of all shards. Raises as
    :func:`noted_snapshot`, and :class:`~wormhole.model.errors.ArchiveError` if writing is not permitted.
    """
    noted = noted_snapshot(store)
    if noted is not None and continued_at(noted, manifests):
        newer = [shard for shard, place in noted.places.items() if shard in made.places and made.places[shard] < place]
        if newer:
            return
    places = {shard: str(place) for shard, place in made.places.items()}
    given = {"format": FORMAT, "to": made.to, "created": made.created, "places": places}
    store.storage.replace(NOTE, with_checksum(given, indent=1, ensure_ascii=False))


def needed_from(store: ArchiveStore) -> tuple[NewestSnapshot | None, dict[str, LogPosition]]:
    """The newest snapshot, and the result of :func:`continued_at` for it.

    Raises as :func:`noted_snapshot` and, if a snapshot is noted, as
    :meth:`~spark_replay.archive.store.ArchiveStore.heads`.
    """
    noted = noted_snapshot(store)
    return noted, {} if noted is None else continued_at(noted, store.heads())


def continued_at(noted: NewestSnapshot, manifests: Mapping[str, Manifest]) -> dict[str, LogPosition]:
    """The place in each shard from which on the next snapshot needs the archive.

    Empty: the next snapshot cannot be made from ``noted``, because the archive of a shard is gone, begins later, or
    lost a part after it. ``manifests``: the manifests of all shards; their files are not used. A shard that the
    snapshot does not have is needed from its first row on.
    """
    if noted.places.keys() - manifests.keys():
        return {}
    found: dict[str, LogPosition] = {}
    for shard, manifest in manifests.items():
        place = noted.places.get(shard)
        if place is None:
            if not manifest.whole:
                return {}
            place = manifest.begin.order
        lost = any(loss.resume.order > place for loss in manifest.losses)
        if lost or not manifest.begin.order <= place <= manifest.end.order:
            return {}
        found[shard] = place
    return found
