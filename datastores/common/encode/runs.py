"""Splits an encoder's columns into one run per shard. Hot: compiled where possible."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from datastores.common.encode.piece import ALL_SHARDS, Piece
from wormhole.model.schema import Schema
from wormhole.model.segment import Run

__all__ = ["open_shards", "runs_of", "uniform"]

# A private copy of the constant, because the .pxd makes it a C integer.
_ALL: Final = ALL_SHARDS


def uniform(column: array[int], n: int) -> array[int]:
    """The first ``n`` entries, or a single entry if all are the same."""
    view = column
    for i in range(1, n):
        if view[i] != view[0]:
            return column[:n]
    return column[: min(n, 1)]


def shards_in(shard_of: Sequence[int], known: Sequence[int]) -> set[int]:
    """The shards of updates with these ordinals. A barrier goes to all ``known`` shards."""
    shards = set(shard_of)
    if ALL_SHARDS in shards:
        shards.discard(ALL_SHARDS)
        shards.update(known)
    return shards


def open_shards(piece: Piece, known: Sequence[int]) -> set[int]:
    """The shards of the updates in the piece's last transaction, which continues in the next piece."""
    first = piece.tx_end[-1] if piece.tx_end else 0
    if first == len(piece.ends):
        return set()
    rest = piece.shard_of[first:] if len(piece.shard_of) > 1 else piece.shard_of
    return shards_in(rest, known)


def runs_of(
    piece: Piece,
    shards: dict[int, str],
    schemas: Sequence[Schema],
    sources: tuple[str, ...],
    file: int,
    times: array[int],
    first_index: int,
    opened: set[int],
) -> dict[str, Run]:
    """The runs of a piece by shard name.

    ``shards``: names of all known shards by ordinal. ``sources``: the list that `Piece.tx_source` indexes. ``times``:
    the commit time of each transaction. ``first_index``: index of the first update in its transaction, 0 unless the
    piece begins within one. ``opened``: the shards that had earlier updates of that transaction and need its end.
    """
    touched = shards_in(piece.shard_of, list(shards)) | opened
    files = array("Q", (file,)) * len(piece.tx_number)
    if len(touched) == 1 and len(piece.shard_of) <= 1:
        run = Run(
            piece.blob,
            piece.ends,
            (),
            sources,
            piece.tx_number,
            files,
            piece.tx_offset,
            times,
            piece.tx_end,
            first_index=first_index,
            tx_source=piece.tx_source,
        )
        _set_schemas(run, piece.schema_of, schemas)
        return {shards[touched.pop()]: run}
    result: dict[str, Run] = {}
    for shard in sorted(touched):
        run = _pick(piece, shard, files, times, first_index, shard in opened, sources)
        if not run.tx_number:
            continue  # this piece has no update of the shard, an earlier piece of the open transaction had
        _set_schemas(run, run.schema_index, schemas)
        result[shards[shard]] = run
    return result


def _set_schemas(run: Run, used: array[int], schemas: Sequence[Schema]) -> None:
    """Give the run its own table of the schemas in ``used``. A single entry of ``used`` applies to all updates."""
    ordinals = sorted(set(used))
    run.schemas = tuple(schemas[ordinal] for ordinal in ordinals)
    if len(ordinals) < 2:
        run.schema_index = array("I")
    else:
        place = {ordinal: i for i, ordinal in enumerate(ordinals)}
        run.schema_index = array("I", map(place.__getitem__, used))


def _pick(
    piece: Piece,
    shard: int,
    files: array[int],
    times: array[int],
    first_index: int,
    opened: bool,
    sources: tuple[str, ...],
) -> Run:
    """The run of one shard. Its ``schema_index`` still holds ordinals: one for each update, or one for all."""
    n = len(piece.ends)
    transactions = len(piece.tx_number)
    ended = len(piece.tx_end)
    ends = piece.ends
    shard_of = piece.shard_of if len(piece.shard_of) == n else array("I", piece.shard_of) * n
    tx_end = piece.tx_end
    picked_ends = array("I", bytes(4 * n))
    picked_index = array("I", bytes(4 * n))
    picked = array("I", bytes(4 * n))
    picked_tx: list[int] = []
    counts = array("I")
    view = memoryview(piece.blob)
    parts: list[memoryview] = []
    out_ends = picked_ends
    out_index = picked_index
    out = picked
    count = 0
    size = 0
    begin = 0
    run_start = -1  # neighbouring updates of the shard are copied together
    run_end = 0
    for t in range(transactions):
        last = t >= ended
        stop = n if last else tx_end[t]
        before = count
        for i in range(begin, stop):
            of = shard_of[i]
            if of != shard and of != _ALL:
                continue
            start = ends[i - 1] if i else 0
            if run_start >= 0 and start != run_end:
                parts.append(view[run_start:run_end])
                run_start = -1
            if run_start < 0:
                run_start = start
            run_end = ends[i]
            size += run_end - start
            out_ends[count] = size
            out_index[count] = i - begin + (first_index if t == 0 else 0)
            out[count] = i
            count += 1
        if count > before or (t == 0 and opened and not last):
            picked_tx.append(t)
            if not last:
                counts.append(count)
        begin = stop
    if run_start >= 0:
        parts.append(view[run_start:run_end])
    schema_of = piece.schema_of
    return Run(
        b"".join(parts),
        picked_ends[:count],
        (),
        sources,
        array("Q", [piece.tx_number[t] for t in picked_tx]),
        array("Q", [files[t] for t in picked_tx]),
        array("Q", [piece.tx_offset[t] for t in picked_tx]),
        array("q", [times[t] for t in picked_tx]),
        counts,
        schema_index=schema_of[:1] if len(schema_of) <= 1 else array("I", [schema_of[i] for i in picked[:count]]),
        indexes=picked_index[:count],
        tx_source=array("I", [piece.tx_source[t] for t in picked_tx]) if piece.tx_source else array("I"),
    )
