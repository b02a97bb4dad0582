# cython: boundscheck=False, wraparound=False
"""Decodes the bytes of updates into columns, which are arrays of the caller with an entry for each update. Hot:
compiled where possible.

A place is encoded as a position (20 bytes), ``inside`` (1) and the index in its transaction (4), big endian; see
``UpdatePlace`` in push.proto.
"""

from __future__ import annotations

from array import array
from typing import Final

from wormhole.model.errors import DecodeError
from wormhole.wire.values import Ints

__all__ = ["LARGE", "PARTIAL", "PLACE_BYTES", "bits_of_bytes", "copy_missing", "empty", "kinds_of", "scan", "spread"]
__all__ += ["unavailable", "write_columns", "write_ids", "write_names"]

PARTIAL: Final = 1
"""The row's `after` may lack columns, or its values were left out."""
LARGE: Final = 2
"""The row's values were left out for their size."""

PLACE_BYTES: Final = 25
"""The number of bytes of an encoded place."""

# Private copies of the constants: the .pxd makes C integers of them.
_PARTIAL: Final = 1
_LARGE: Final = 2
_PLACE: Final = 25
_NULL: Final = 8  # fields of Value from this number on have no content
_UNAVAILABLE: Final = 9
_BOOL: Final = 6
_COMPILED: Final = not __file__.endswith(".py")


def scan(
    blob: bytes, sizes: array[int], ops: bytearray, flags: bytearray, key_sizes: array[int], old_sizes: array[int]
) -> tuple[bytes, bytes]:
    """Decode the operations, flags and keys of serialized ``wormhole.wire.v1.Update`` messages. ``blob``: the joined
    messages, which have these ``sizes``.

    Fills ``ops`` with the numbers of the operations and ``flags`` with ``PARTIAL`` and ``LARGE``. Returns the joined
    keys and the joined old keys (before a change), whose sizes are in ``key_sizes`` and ``old_sizes``. An old key has
    the form of a key, so that the two can be compared. A missing old key has no bytes. Raises
    :class:`~wormhole.model.errors.DecodeError` for bytes that are no update.
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
    numbers: Ints,
    sources: Ints,
    times: Ints,
    tx_indexes: Ints,
    ends_tx: bytearray,
    first: int,
) -> None:
    """Copy the values of each transaction to each of its updates, for updates from ``first`` on, as many as ``ends_tx``
    has entries.

    ``tx_end`` has one entry for each transaction: the number of updates up to its end. The first ``ended`` transactions
    end here. The last transaction may continue; its entry is then the number of all updates. A list of files, sources
    or times with a single entry has it for all transactions. ``indexes``: the index of every update in its transaction;
    empty where they count up, from ``first_index`` in the first transaction. ``ends_tx``: set to 1 at the last update
    of each transaction that ends. Raises ``ValueError`` for columns that do not fit each other.
    """
    count = len(ends_tx)
    transactions = len(tx_end)
    total = tx_end[transactions - 1] if transactions else 0
    if first < 0 or first + count > total:
        raise ValueError(f"updates {first} to {first + count} of {total}")
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
        (len(indexes), total if given else 0),
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
    last = first + count
    begin = 0
    for t in range(transactions):
        stop = in_end[t]
        if stop < begin or stop > total:
            raise ValueError(f"transaction {t} ends at {stop} of {total} updates")
        if begin >= last and begin > first:
            break
        if stop <= first:
            begin = stop
            continue
        file = in_file[t if many_files else 0]
        offset = in_offset[t]
        number = in_number[t]
        source = in_source[t if many_sources else 0]
        time = in_time[t if many_times else 0]
        base = first_index if t == 0 else 0
        for i in range(max(begin, first), min(stop, last)):
            index = in_index[i] if given else base + i - begin
            row = i - first
            at = row * _PLACE
            for k in range(4):
                out_place[at + 3 - k] = born >> (8 * k) & 0xFF
                out_place[at + 24 - k] = index >> (8 * k) & 0xFF
            for k in range(8):
                out_place[at + 11 - k] = file >> (8 * k) & 0xFF
                out_place[at + 19 - k] = offset >> (8 * k) & 0xFF
            out_place[at + 20] = t >= ended
            out_number[row] = number
            out_source[row] = source
            out_time[row] = time
            out_index[row] = index
        if begin < stop <= last and t < ended:
            out_ends[stop - 1 - first] = 1
        begin = stop


# --- cells, as wormhole.wire.values.locate fills them ---


def copy_missing(kinds: bytearray, numbers: Ints, sizes: Ints, source: int, target: int, count: int) -> None:
    """Copy ``count`` cells from ``source`` on to the cells from ``target`` on, except to a cell with a value."""
    kind = kinds
    number = numbers
    size = sizes
    for i in range(count):
        if (kind[target + i] == 0 or kind[target + i] == _UNAVAILABLE) and kind[source + i] != 0:
            kind[target + i] = kind[source + i]
            number[target + i] = number[source + i]
            size[target + i] = size[source + i]


def empty(kinds: bytearray, count: int, first: int, columns: int, rows: bytearray) -> None:
    """Make cells without a value NULL, in columns from ``first`` on and in the rows whose byte in ``rows`` is set."""
    kind = kinds
    wanted = rows
    for c in range(first, first + columns):
        for i in range(count):
            if wanted[i] and (kind[c * count + i] == 0 or kind[c * count + i] == _UNAVAILABLE):
                kind[c * count + i] = _NULL


def kinds_of(kinds: bytearray, count: int, declared: bytes) -> tuple[bytearray, int]:
    """The kind of the values of each column, which has ``count`` cells, or its ``declared`` kind if no cell has a
    value. Also the number of rows before the first value of another kind.
    """
    kind = kinds
    found = bytearray(declared)
    out = found
    until = count
    for c in range(len(found)):
        first = 0
        for i in range(count):
            one = kind[c * count + i]
            if one in (0, _NULL, _UNAVAILABLE, first):
                continue
            if first == 0:
                first = one
                out[c] = one
            else:
                until = min(until, i)
                break
    return found, until


def bits_of_bytes(values: bytearray, begin: int, count: int, out: bytearray, at: int) -> int:
    """Write ``count`` bytes as Arrow's booleans to ``out`` from ``at`` on, 0 as false. Returns how many are 0."""
    value = values
    bit = out
    zeros = 0
    for i in range(count):
        if value[begin + i]:
            bit[at + (i >> 3)] |= 1 << (i & 7)
        else:
            zeros += 1
    return zeros


def write_columns(
    data: bytes,
    kinds: bytearray,
    numbers: Ints,
    sizes: Ints,
    count: int,
    first: int,
    types: bytearray,
    out: bytearray,
    body: int,
    at: int,
    nodes: list[int],
    buffers: list[int],
) -> int:
    """Write columns in Arrow's form to ``out``, which holds 0s, from ``at`` on, a multiple of 8. The columns are those
    from ``first`` on with ``count`` cells each. ``types``: the kinds of their values, without entries. Returns the
    first free place.

    Adds to ``nodes`` the numbers of rows and of nulls of each column. Adds to ``buffers`` the beginning of each buffer,
    counted from ``body``, and its size. Raises ``OverflowError`` if a column has more bytes than Arrow counts in 32
    bits, and ``ValueError`` for an ``out`` that is too short.
    """
    p = data
    kind = kinds
    number = numbers
    size = sizes
    type_of = types
    byte = out
    view = memoryview(out)
    word = view.cast("Q")
    integer = view.cast("i")
    end = len(out)
    for c in range(len(types)):
        wanted = type_of[c]
        cell = (first + c) * count
        missing = 0
        total = 0
        for i in range(cell, cell + count):
            if kind[i] == wanted:
                total += size[i]
            else:
                missing += 1
        if total > 0x7FFF_FFFF:
            raise OverflowError("the values of a column have more than 2 GiB")
        fixed = 8 * count if 3 <= wanted <= 5 else 0 if wanted == _BOOL else 4 * count + total + 16
        if at + fixed + (count + 63) // 64 * 16 > end:
            raise ValueError(f"{end} bytes are too few for the columns of {count} rows")
        nodes.append(count)
        nodes.append(missing)
        buffers.append(at - body)
        buffers.append((count + 7) // 8 if missing else 0)
        if missing:
            for i in range(count):
                if kind[cell + i] == wanted:
                    byte[at + (i >> 3)] |= 1 << (i & 7)
            at += (count + 63) // 64 * 8
        buffers.append(at - body)
        if wanted == _BOOL:
            for i in range(count):
                if kind[cell + i] == wanted and number[cell + i]:
                    byte[at + (i >> 3)] |= 1 << (i & 7)
            buffers.append((count + 7) // 8)
            at += (count + 63) // 64 * 8
        elif 3 <= wanted <= 5:
            slot = at >> 3
            for i in range(count):
                if kind[cell + i] == wanted:
                    word[slot + i] = number[cell + i]
            buffers.append(8 * count)
            at += 8 * count
        else:
            slot = at >> 2
            buffers.append(4 * count + 4)
            at += (count + 2) // 2 * 8
            buffers.append(at - body)
            buffers.append(total)
            start = at
            for i in range(count):
                if kind[cell + i] == wanted:
                    length = size[cell + i]
                    source = number[cell + i]
                    if _COMPILED:
                        for k in range(length):
                            byte[at + k] = p[source + k]
                    else:
                        byte[at : at + length] = p[source : source + length]
                    at += length
                integer[slot + 1 + i] = at - start
            at = (at + 7) & -8
    return at


def write_ids(numbers: Ints, sources: Ints, texts: list[bytes], out: bytearray, offsets: int) -> int:
    """Write an Arrow text for each of ``numbers``: its source, ``:`` and the number in decimal. The texts' offsets go
    to ``out`` from ``offsets`` on, a multiple of 8, and the texts follow them. Returns the end of the texts.

    Raises ``ValueError`` for an ``out`` that is too short.
    """
    number_of = numbers
    source_of = sources
    byte = out
    integer = memoryview(out).cast("i")
    count = len(numbers)
    end = len(out)
    slot = offsets >> 2
    start = at = offsets + (count + 2) // 2 * 8
    previous = length = 0
    number = 0
    source = -1
    for i in range(count):
        if number_of[i] != number or source_of[i] != source:
            number = number_of[i]
            source = source_of[i]
            text = b"%b:%d" % (texts[source], number)
            length = len(text)
            if at + length > end:
                raise ValueError(f"{end} bytes are too few for the transactions of {count} rows")
            p = text
            for k in range(length):
                byte[at + k] = p[k]
        else:
            if at + length > end:
                raise ValueError(f"{end} bytes are too few for the transactions of {count} rows")
            for k in range(length):
                byte[at + k] = byte[previous + k]
        previous = at
        at += length
        integer[slot + 1 + i] = at - start
    return at


def write_names(codes: Ints | Ints, names: bytes, ends: Ints, out: bytearray, offsets: int) -> int:
    """Write the name of each of ``codes``, as :func:`write_ids` does. ``names``: all names, one after the other;
    ``ends``: where each name ends. Raises as :func:`write_ids`, and for a code without a name.
    """
    code_of = codes
    ends_of = ends
    p = names
    byte = out
    integer = memoryview(out).cast("i")
    count = len(codes)
    end = len(out)
    slot = offsets >> 2
    start = at = offsets + (count + 2) // 2 * 8
    for i in range(count):
        code = code_of[i]
        if code < 0 or code >= len(ends):
            raise ValueError(f"name {code} of {len(ends)}")
        begin = ends_of[code - 1] if code else 0
        length = ends_of[code] - begin
        if at + length > end:
            raise ValueError(f"{end} bytes are too few for {count} names")
        for k in range(length):
            byte[at + k] = p[begin + k]
        at += length
        integer[slot + 1 + i] = at - start
    return at


def unavailable(kinds: bytearray, begin: int, columns: int, count: int) -> tuple[bytearray, array[int], array[int]]:
    """The cells whose values are not in the log, among ``columns`` columns of ``count`` rows.

    Returns a bit for each row, 1 if it has such cells; offsets of each row in the list of columns; and this list.
    """
    kind = kinds
    rows = bytearray((count + 7) // 8)
    bit = rows
    offsets = array("i", bytes(4 * count + 4))
    out_offset = offsets
    total = 0
    for i in range(count):
        for c in range(columns):
            at = begin + c * count + i
            if kind[at] == 0 or kind[at] == _UNAVAILABLE:
                total += 1
                bit[i >> 3] |= 1 << (i & 7)
        out_offset[i + 1] = total
    found = array("i", bytes(4 * total))
    if not total:
        return rows, offsets, found
    out = found
    total = 0
    for i in range(count):
        for c in range(columns):
            at = begin + c * count + i
            if kind[at] == 0 or kind[at] == _UNAVAILABLE:
                out[total] = c
                total += 1
    return rows, offsets, found
