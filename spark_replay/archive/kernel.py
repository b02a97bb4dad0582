# cython: boundscheck=False, wraparound=False
"""The loops over single updates between batch bodies, archive columns and runs. Hot: compiled where possible.

Arrays are filled that the caller made, so that nothing is decided here but what a byte means. ``PLACE`` is the size of
:func:`~spark_replay.archive.columns.place_bytes`: a place (20 bytes), ``inside`` (1), the index in its transaction (4),
big endian.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from wormhole.model.errors import DecodeError

__all__ = ["LARGE", "PARTIAL", "boundaries", "framed", "grouped", "scan", "spread"]

PARTIAL: Final = 1
"""Of a row: `after` may lack columns, or the values were left out."""
LARGE: Final = 2
"""Of a row: the values were left out for their size."""

# The constants again, private: the .pxd makes C integers of them.
_PARTIAL: Final = 1
_LARGE: Final = 2
_PLACE: Final = 25
_INSIDE: Final = 20


def scan(
    blob: bytes, sizes: array[int], ops: bytearray, flags: bytearray, key_sizes: array[int], old_sizes: array[int]
) -> tuple[bytes, bytes]:
    """The values with columns of their own in serialized ``wormhole.wire.v1.Update`` messages, of ``sizes`` one after
    the other in ``blob``.

    Fills, from the front: the numbers of the operations, ``PARTIAL`` and ``LARGE``, and the sizes of the keys (of the
    keys before a change) in the bytes that are returned. An old key has the form of a key, so that the two can be
    compared; where there is none it has no bytes. Raises :class:`~wormhole.model.errors.DecodeError` for bytes that are
    no update.
    """
    view = blob
    in_sizes = sizes
    out_ops = ops
    out_flags = flags
    out_keys = key_sizes
    out_olds = old_sizes
    total = len(blob)
    keys: list[bytes] = []
    old_keys: list[bytes] = []
    at = 0
    for i in range(len(sizes)):
        stop = at + in_sizes[i]
        if stop > total:
            raise DecodeError(f"update {i} of a batch ends at {stop} of {total} bytes")
        op = 0
        flag = 0
        old_size = 0
        key_begin = -1
        key_end = -1
        while at < stop:
            field = at
            tag = view[at]
            at += 1
            value = 0
            shift = 0
            while True:
                if at >= stop or shift > 28:
                    raise DecodeError(f"update {i} of a batch breaks off in field {tag >> 3}")
                byte = view[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            if tag & 0x87 == 0:
                if tag == 0x08:
                    if value > 0xFF:
                        raise DecodeError(f"update {i} of a batch has the unknown operation {value}")
                    op = value
                elif tag == 0x38 and value:
                    flag |= _PARTIAL | _LARGE
                continue
            if tag & 0x87 != 2 or value > stop - at:
                raise DecodeError(f"update {i} of a batch has a field with tag {tag} and {value} bytes")
            if tag == 0x12:
                if key_begin < 0:
                    key_begin = field
                elif key_end != field:
                    raise DecodeError(f"update {i} of a batch has its key in pieces")
                key_end = at + value
            elif tag == 0x1A:
                # Value.unavailable, and the empty value, which is read as that.
                if value == 0 or view[at] == 0x48:
                    flag |= _PARTIAL
            elif tag == 0x2A:
                old_keys.append(b"\x12")
                old_keys.append(blob[field + 1 : at + value])
                old_size += at + value - field
            at += value
        if key_begin >= 0:
            keys.append(blob[key_begin:key_end])
        out_ops[i] = op
        out_flags[i] = flag
        out_keys[i] = key_end - key_begin
        out_olds[i] = old_size
    return b"".join(keys), b"".join(old_keys)


def spread(
    tx_end: array[int],
    ended: int,
    incarnation: int,
    files_in: array[int],
    offsets_in: array[int],
    first_index: int,
    indexes: array[int],
    places: bytearray,
    numbers_in: array[int],
    sources_in: array[int],
    times_in: array[int],
    numbers: array[int],
    sources: array[int],
    times: array[int],
    tx_indexes: array[int],
    ends_tx: bytearray,
) -> None:
    """What is known of each transaction, to each of its updates.

    ``tx_end`` has one entry for each, also for one that goes on, which is none of the first ``ended``: all updates. Of
    files, sources and times one entry is for all. ``indexes``: of every update in its transaction; empty where they
    count up, from ``first_index`` in the first transaction. ``ends_tx``: set to 1 at the last update of each
    transaction that ends. Raises ``ValueError`` for columns that do not fit each other.
    """
    count = len(ends_tx)
    transactions = len(tx_end)
    given = len(indexes) > 0
    many_files = len(files_in) > 1
    many_sources = len(sources_in) > 1
    many_times = len(times_in) > 1
    for size, needed in (
        (len(offsets_in), transactions),
        (len(numbers_in), transactions),
        (len(files_in), transactions if many_files else min(1, transactions)),
        (len(sources_in), transactions if many_sources else min(1, transactions)),
        (len(times_in), transactions if many_times else min(1, transactions)),
        (len(indexes), count if given else 0),
        (len(places), count * _PLACE),
        (len(numbers), count),
        (len(sources), count),
        (len(times), count),
        (len(tx_indexes), count),
    ):
        if size != needed:
            raise ValueError(f"{size} entries for {count} updates in {transactions} transactions")
    in_end = tx_end
    in_file = files_in
    in_offset = offsets_in
    in_index = indexes
    in_number = numbers_in
    in_source = sources_in
    in_time = times_in
    out_place = places
    out_number = numbers
    out_source = sources
    out_time = times
    out_index = tx_indexes
    out_ends = ends_tx
    born = incarnation
    begin = 0
    for t in range(transactions):
        stop = in_end[t]
        if stop < begin or stop > count:
            raise ValueError(f"transaction {t} ends at {stop} of {count} updates")
        file = in_file[t if many_files else 0]
        offset = in_offset[t]
        number = in_number[t]
        source = in_source[t if many_sources else 0]
        time = in_time[t if many_times else 0]
        base = first_index if t == 0 else 0
        for i in range(begin, stop):
            index = in_index[i] if given else base + i - begin
            at = i * _PLACE
            for k in range(4):
                out_place[at + 3 - k] = born >> (8 * k) & 0xFF
                out_place[at + 24 - k] = index >> (8 * k) & 0xFF
            for k in range(8):
                out_place[at + 11 - k] = file >> (8 * k) & 0xFF
                out_place[at + 19 - k] = offset >> (8 * k) & 0xFF
            out_place[at + 20] = t >= ended
            out_number[i] = number
            out_source[i] = source
            out_time[i] = time
            out_index[i] = index
        if stop > begin and t < ended:
            out_ends[stop - 1] = 1
        begin = stop


def boundaries(
    places: Any, numbers: Any, sources: Any, ends: Any, stops: array[int], limit: int, whole: bool
) -> list[int]:
    """Where to cut rows into pieces that can be runs: ordinals of rows that begin one, the first row's aside.

    A piece has one incarnation and one place per transaction: rows of a transaction that was not finished there end it.
    Else it ends at the first of ``stops`` (ordinals, where a datamarker lies) at half of ``limit`` bytes, or at the
    first transaction's end at ``limit``. ``ends[i + 1]``: where row i ends. ``whole``: every row is a transaction's
    end.
    """
    cuts: list[int] = []
    place = places
    number = numbers
    source = sources
    end = ends
    stop = stops
    n = len(numbers)
    stopping = len(stops)
    s = 0
    start = end[0]
    for i in range(1, n):
        at = i * _PLACE
        before = at - _PLACE
        same = number[i] == number[i - 1] and source[i] == source[i - 1]
        inside = place[at + _INSIDE] != 0
        cut = not whole and place[before + _INSIDE] != 0 and not (inside and same)
        for k in range(4):
            if place[at + k] != place[before + k]:
                cut = True
        while s < stopping and stop[s] < i:
            s += 1
        size = end[i] - start
        if (size >= limit and (whole or inside or not same)) or (2 * size >= limit and s < stopping and stop[s] == i):
            cut = True
        if cut:
            cuts.append(i)
            start = end[i]
    return cuts


def framed(data: Any, ends: Any, begin: int, stop: int) -> tuple[bytes, array[int]]:
    """Updates ``begin`` to ``stop`` as ``BatchBody.updates`` entries, each with its field tag and length, and where
    they end.

    ``data``: the bytes of the updates; ``ends[i]``: where update i begins in it, and the one before ends.
    """
    end = ends
    count = stop - begin
    out_ends = array("I", bytes(4 * count))
    out = out_ends
    size = 0
    for i in range(count):
        length = end[begin + i + 1] - end[begin + i]
        size += length + 2
        while length > 0x7F:
            length >>= 7
            size += 1
    made = bytearray(size)
    view = data
    blob = made
    at = 0
    for i in range(count):
        first = end[begin + i]
        length = end[begin + i + 1] - first
        blob[at] = 0x0A
        at += 1
        size = length
        while size > 0x7F:
            blob[at] = size & 0x7F | 0x80
            at += 1
            size >>= 7
        blob[at] = size
        at += 1
        blob[at : at + length] = view[first : first + length]
        at += length
        out[i] = at
    return bytes(made), out_ends


def grouped(
    places: Any, numbers: Any, sources: Any, indexes: Any, begin: int, stop: int, whole: bool
) -> tuple[array[int], bool, array[int]]:
    """The transactions of rows ``begin`` to ``stop``: the ordinal of each one's first row, counted from ``begin``;
    whether the indexes only count up (see ``wormhole.model.segment.Run.indexes``), and the indexes. ``whole``: as in
    :func:`boundaries`."""
    place = places
    number = numbers
    source = sources
    index_of = indexes
    firsts = array("I")
    found = array("I", bytes(4 * (stop - begin)))
    out = found
    counting = True
    expected = index_of[begin]
    for i in range(begin, stop):
        new = whole or i == begin or number[i] != number[i - 1] or source[i] != source[i - 1]
        if not new:
            at = i * _PLACE
            for k in range(_INSIDE + 1):
                if place[at + k] != place[at - _PLACE + k]:
                    new = True
        if new:
            firsts.append(i - begin)
            if i > begin:
                expected = 0
        index = index_of[i]
        if index != expected:
            counting = False
        expected += 1
        out[i - begin] = index
    return firsts, counting, found
