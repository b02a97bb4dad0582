"""Plans the checkpoints that list the older files of a shard, so that commits hardly grow with the archive. Pure.

A manifest lists at most :data:`INLINE` files itself, the newest ones. When there are more, :data:`INLINE` files become
a checkpoint. Sixteen such checkpoints become one checkpoint of 256 files. Sixteen of those become one checkpoint of
:data:`LARGEST` files, which is final. So a file is written into three checkpoints in its life. A manifest names about
thirty checkpoints, and one more for each 4,096 files.

Checkpoints are immutable. When files are removed from the middle or the beginning, new checkpoints replace the
checkpoints that listed them. ``retention`` removes checkpoints that no manifest names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spark_replay.archive.manifest import Checkpoint, FileEntry

__all__ = ["INLINE", "LARGEST", "Listed", "arranged", "held_chunks", "joined"]

INLINE: Final = 16
"""A manifest lists at most this many files itself. The newest is always among them, because its end may still move."""
LARGEST: Final = 4096
_SIZES: Final = (INLINE, 256, LARGEST)
_MOST: Final = 48
"""The number of adjacent checkpoints that become one, however few files they list: merging of files leaves such
checkpoints.
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A chunk: adjacent files. ``stored``: the checkpoint that lists exactly these files; ``None``: not stored yet.
    ``files``: empty if the checkpoint was not read.
    """

    count: int
    stored: Checkpoint | None = None
    files: tuple[FileEntry, ...] = ()


def held_chunks(files: Sequence[FileEntry], known: Sequence[Listed]) -> tuple[list[Listed], tuple[FileEntry, ...]]:
    """Divide ``files``, all files of a shard, into chunks and the rest, which is newer.

    ``known``: the chunks of the previous manifest. A chunk stays as it is if ``files`` has all of its files, in order.
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
    """Returns groups of chunks, and the files that the next manifest lists itself.

    Each group becomes one checkpoint. A group of one stored chunk stays as it is. ``rest``: the files after the chunks.
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
    """Join adjacent groups of up to ``small`` files into groups of up to ``large``, if they fill at least one."""
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
    """The files of chunks that become one checkpoint. ``read`` returns the files of a stored one; its errors pass."""
    return tuple(
        entry for one in group for entry in (one.files if one.files or one.stored is None else read(one.stored))
    )
