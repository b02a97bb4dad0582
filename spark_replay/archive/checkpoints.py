"""Which checkpoints list the older files of a shard, so that a commit writes little however long the archive is. Pure.

A manifest lists the newest files itself, :data:`INLINE` at most. What no longer fits becomes a checkpoint of as many
files; sixteen of these become one of 256, and sixteen of those one of :data:`LARGEST`, which stays. So a file is
written into three checkpoints in its life, a manifest names some thirty of them and one for each 4,096 files, and what
a commit writes hardly grows with the archive.

Checkpoints are immutable: whatever takes files out of the middle, or from the beginning, gives those that listed them
new ones. What nobody names any more, ``retention`` removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spark_replay.archive.manifest import Checkpoint, FileEntry

__all__ = ["INLINE", "LARGEST", "Listed", "arranged", "held_chunks", "joined"]

INLINE: Final = 16
"""A manifest lists so many files itself; the newest always is among them, since its end may still move."""
LARGEST: Final = 4096
_SIZES: Final = (INLINE, 256, LARGEST)
_MOST: Final = 48
"""So many that adjoin become one in any case: where files were merged, checkpoints are left that list few."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Adjacent files. ``stored``: the checkpoint that lists exactly these; ``None``: none does yet. ``files``: empty
    where they were not read.
    """

    count: int
    stored: Checkpoint | None = None
    files: tuple[FileEntry, ...] = ()


def held_chunks(files: Sequence[FileEntry], known: Sequence[Listed]) -> tuple[list[Listed], tuple[FileEntry, ...]]:
    """``files``, all of a shard, as chunks and the rest, which is newer. ``known``: the chunks of the manifest before;
    those of which every file is still there, in the same order, stay as they are.
    """
    files = tuple(files)
    place = {entry.name: number for number, entry in enumerate(files)}
    found: list[Listed] = []
    at = 0
    for chunk in known:
        begin = place.get(chunk.files[0].name, -1)
        end = begin + chunk.count
        # The newest file is in no checkpoint.
        if begin < at or end >= len(files) or files[begin:end] != chunk.files:
            continue
        found += _cut(files[at:begin])
        found.append(chunk)
        at = end
    return found, files[at:]


def _cut(files: tuple[FileEntry, ...]) -> Iterator[Listed]:
    for begin in range(0, len(files), LARGEST):
        part = files[begin : begin + LARGEST]
        yield Listed(len(part), None, part)


def arranged(
    chunks: Sequence[Listed], rest: tuple[FileEntry, ...]
) -> tuple[list[tuple[Listed, ...]], tuple[FileEntry, ...]]:
    """What the next manifest names, and the files that it lists itself. Chunks that stand together become one
    checkpoint; one that stands alone and is stored stays as it is.

    ``rest``: the files behind the chunks, of which the newest ones are listed.
    """
    pieces = list(chunks)
    while len(rest) > INLINE:
        size = max(one for one in _SIZES if one < len(rest))
        pieces.append(Listed(size, None, rest[:size]))
        rest = rest[size:]
    groups: list[tuple[Listed, ...]] = [(one,) for one in pieces]
    for small, large in pairwise(_SIZES):
        groups = list(_merged(groups, small, large))
    return groups, rest


def _merged(groups: list[tuple[Listed, ...]], small: int, large: int) -> Iterator[tuple[Listed, ...]]:
    """Those that adjoin and have up to ``small`` files each become some of up to ``large``, when they fill one."""
    run: list[tuple[Listed, ...]] = []
    for group in groups:
        if _count(group) <= small:
            run.append(group)
            continue
        yield from _packed(run, large)
        run = []
        yield group
    yield from _packed(run, large)


def _packed(run: list[tuple[Listed, ...]], large: int) -> Iterator[tuple[Listed, ...]]:
    if sum(map(_count, run)) < large and len(run) < _MOST:
        yield from run
        return
    packed: tuple[Listed, ...] = ()
    for group in run:
        if packed and _count(packed) + _count(group) > large:
            yield packed
            packed = ()
        packed += group
    yield packed


def _count(group: tuple[Listed, ...]) -> int:
    return sum(chunk.count for chunk in group)


def joined(group: Sequence[Listed], read: Callable[[Checkpoint], tuple[FileEntry, ...]]) -> tuple[FileEntry, ...]:
    """The files of chunks that become one checkpoint. ``read``: those of a stored one; what it raises goes through."""
    return tuple(
        entry for one in group for entry in (one.files if one.files or one.stored is None else read(one.stored))
    )
