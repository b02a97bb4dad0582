"""Decodes the rows of an event while they are read, because the event is too large for memory.

Most rows are small, and are decoded in parts of the event with many rows. A row larger than such a part is read cell by
cell. Values over ``max_update_bytes`` are skipped, but the row's key is kept.
"""

from __future__ import annotations

import io
from typing import Final

from datastores.mysql.decode.actions import ACTIONS, TAKE_ROWS, VERSION_2
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.large_event import Body
from datastores.mysql.decode.rows import Rows
from wormhole.model.errors import DecodeError

__all__ = ["RowStream", "open_rows"]

_STRETCH: Final = 256 << 10
_PIECE: Final = 256 << 10
_KEPT_KEY: Final = 1 << 16  # as in `datastores.mysql.decode.row_image`
_INSERT, _UPDATE, _DELETE = 1, 2, 3


def open_rows(encoder: Encoder, kind: int, body: Body) -> int:
    """Read the part before the rows of an event of type ``kind``. Returns the result of `Encoder.open_rows`.

    Raises :class:`DecodeError`, whose table is in `Encoder.table_id`.
    """
    return encoder.open_rows(head_of_rows(kind, body), kind)


def head_of_rows(kind: int, body: Body) -> bytes:
    """The bytes before the rows: their table, the number of columns, and the bitmaps of present columns."""
    head = body.take(8)
    if VERSION_2[kind]:
        size = body.take(2)
        head += size + body.take(max(0, int.from_bytes(size, "little") - 2))
    count = body.take(1)
    if count == b"\xfc":
        count += body.take(2)
    head += count
    bitmap = (int.from_bytes(count[-2:], "little") + 7) // 8
    return head + body.take(bitmap * (2 if ACTIONS[kind] == TAKE_ROWS + _UPDATE else 1))


class RowStream:
    """Reads the rows, which are the rest of ``body``, into ``encoder``. The caller has called `open_rows`."""

    def __init__(self, encoder: Encoder, body: Body) -> None:
        self._encoder = encoder
        self._rows: Rows = encoder.rows
        self._body = body
        self._stretch = min(_STRETCH, encoder.held)
        self._data = b""
        self._at = 0

    def go(self, max_bytes: int) -> bool:
        """Decode a part of the event, or one larger row, up to ``max_bytes`` of updates. Returns whether no row is
        left.

        Raises :class:`DecodeError`. The rows before the faulty one are then encoded.
        """
        body, rows = self._body, self._rows
        try:
            self._at = rows.stretch(self._data, self._at, len(self._data), max_bytes, not body.left)
            if rows.updates.used < max_bytes and body.left:
                rest = self._data[self._at :]
                self._data, self._at = b"", 0
                if len(rest) > self._stretch:
                    body.back(rest)
                    self._row()
                else:
                    self._data = rest + body.take(2 * self._stretch - len(rest))
        except DecodeError as error:
            raise self._encoder.at_fault(error) from error
        return not body.left and self._at >= len(self._data)

    # --- a row larger than a part ---------------------------------------------------------------------------------

    def _row(self) -> None:
        rows = self._rows
        before = b""
        held = 0
        if rows.op != _INSERT:
            before, left_out = self._image(rows.before_bits, rows.before_count, rows.max_update_bytes, False)
            rows.image(before, False, left_out, b"")
            held = rows.before_used()
            if rows.partial:
                held = max(held, len(before))  # changes of documents need the image before again
            else:
                before = b""
        if rows.op != _DELETE:
            after, left_out = self._image(
                rows.after_bits, rows.after_count, max(0, rows.max_update_bytes - held), rows.partial
            )
            rows.image(after, True, left_out, before)
            del after, before
        rows.row()

    def _image(self, bits: bytes, count: int, limit: int, changes: bool) -> tuple[bytes, bool]:
        """Read the next image. Returns it, and whether values were replaced by NULL because the image exceeds ``limit``
        bytes."""
        body, columns = self._body, self._rows.columns
        out = io.BytesIO()
        if changes:
            options = body.take(1)
            out.write(options + body.take((columns.json + 7) // 8 if options != b"\0" else 0))
        nulls_at = out.tell()
        nulls = bytearray(body.take((count + 7) // 8))
        out.write(nulls)
        left_out = False
        value = -1
        widths, sizes = columns.widths, columns.sizes
        for c in range(columns.count):
            if not bits[c >> 3] >> (c & 7) & 1:
                continue
            value += 1
            if value >> 3 >= len(nulls):
                break  # the image is cut, which its decoder reports
            if nulls[value >> 3] >> (value & 7) & 1:
                continue
            width = widths[c]
            size = sizes[c]
            if width:
                length = body.take(width)
                size = int.from_bytes(length, "little")
                if size > body.left:
                    raise DecodeError(
                        f"{columns.layout.table}, column {columns.layout.names[c]} ({columns.layout.types[c]}): "
                        f"{size} bytes do not fit into the {body.left} that are left"
                    )
                if out.tell() + size > limit and not (columns.keyed[c] and size <= min(limit, _KEPT_KEY)):
                    nulls[value >> 3] |= 1 << (value & 7)
                    left_out = True
                    body.skip(size)
                    continue
                out.write(length)
            while size and body.left:
                piece = body.read(min(size, _PIECE))
                out.write(piece)
                size -= len(piece)
        out.seek(nulls_at)
        out.write(nulls)
        return out.getvalue(), left_out
