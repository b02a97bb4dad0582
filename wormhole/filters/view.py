"""The parts of a run that filters read: operations, keys and fields, each decoded once and shared by every filter."""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Any, Final

from wormhole.formats import BadValue, Decoder, ValueFormats
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.model.values import Value
from wormhole.wire.rows import Row, decode_row, entry, values_of

__all__ = ["Head", "Image", "Reader", "Record", "RunView"]

_SIMPLE_OPS: Final = frozenset((1, 3, 5, 6, 8))
"""Operations that have one key and keep it. UPDATE may change the key; the remaining operations are barriers."""

_MERGE: Final = 6

Record = tuple[Any, ...]
"""The key, then a field at each slot (:data:`~wormhole.formats.decoders.Found`)."""

_UNKNOWN: Final[Record] = ()


class Reader:
    """The location of the fields in one table's updates: in its columns, or in a value that has a format.

    A field's slot is its index in a :data:`Record`.
    """

    __slots__ = ("_columns", "_value", "decoder", "formats")

    def __init__(self, schema: Schema, formats: ValueFormats) -> None:
        self.formats = formats
        self.decoder: Decoder | None = formats.of(schema.table)
        self._columns = {column.name: i + 1 for i, column in enumerate(schema.columns)}
        self._value = self._columns.get("value", 0) - 1

    @property
    def width(self) -> int:
        """The number of fields of a record. It grows when a new filter tests a new field."""
        return 1 + (len(self._columns) if self.decoder is None else len(self.formats.paths))

    def slot(self, path: tuple[str, ...]) -> int | None:
        """A field's slot; ``None`` if the table can have no such field."""
        if self.decoder is not None:
            return self.formats.slot(path) + 1
        return self._columns.get(path[0]) if len(path) == 1 else None

    def of_value(self, key: bytes, value: bytes) -> Record | BadValue:
        """The record of a value that has a format."""
        assert self.decoder is not None
        try:
            return (key, *self.decoder.extract(value, self.formats.paths))
        except BadValue as error:
            return error

    def of_columns(self, values: tuple[Value, ...]) -> Record | BadValue | None:
        """The record of a row's columns; ``None`` if the log has none."""
        if self.decoder is None:
            return (b"", *values) if len(values) == len(self._columns) else None
        value = values[self._value] if 0 <= self._value < len(values) else None
        return self.of_value(b"", value) if isinstance(value, bytes) else None


class _Parsed:
    """An update as the protobuf parser reads it. It does not refer to any image, because each update would then leave
    cyclic garbage.

    ``was`` and ``new``: the fields before and after the change, ``None`` if the log has none.
    """

    __slots__ = ("_begin", "_blob", "_end", "_row", "new", "was")

    def __init__(self, blob: bytes, begin: int, end: int) -> None:
        self._blob = blob
        self._begin = begin
        self._end = end
        self._row: Row | None = decode_row(blob[begin:end])
        self.was: Record | None = None
        self.new: Record | None = None

    @property
    def row(self) -> Row:
        """The parser's object. It is parsed again if it was released."""
        return decode_row(self._blob[self._begin : self._end]) if self._row is None else self._row

    def forget(self) -> None:
        """Release the parser's object: it takes about 3 KB, also for an update of 100 B."""
        self._row = None


class Image:
    """One state of an update's row: before or after the change.

    ``record``: its fields, ``None`` if the log has none.
    """

    __slots__ = ("_which", "parsed", "record", "values")

    def __init__(self, parsed: _Parsed, which: str, values: tuple[Value, ...]) -> None:
        self._which = which
        self.parsed = parsed
        self.values = values
        self.record: Record | None = None

    @property
    def hash_bytes(self) -> bytes:
        """The bytes that :mod:`wormhole.model.sharding` hashes."""
        first = self.values[0] if len(self.values) == 1 else None
        if isinstance(first, bytes):
            return first
        return b"".join(value.SerializeToString() for value in getattr(self.parsed.row, self._which))


class Head:
    """An update as the protobuf parser reads it: operation number, keys, and fields once a filter needs them.

    ``new``: after the change; ``old``: before it, if the change altered the key; ``was``: before it. ``bad``: why the
    value is not of its format. ``parsed``: the source of all these.
    """

    __slots__ = ("_read_by", "bad", "end", "new", "old", "op", "parsed", "was")

    def __init__(self, blob: bytes, begin: int, end: int) -> None:
        """The update's own bytes are ``blob[begin:end]``. ``blob`` is kept as long as the head."""
        self.parsed = parsed = _Parsed(blob, begin, end)
        row = parsed.row
        self._read_by: tuple[object, int] | None = None
        self.bad: BadValue | None = None
        self.op: int = row.op
        self.new = Image(parsed, "key", values_of(row.key))
        self.old = Image(parsed, "old_key", values_of(row.old_key)) if row.old_key else None
        self.was = self.old or Image(parsed, "key", self.new.values)
        self.end = values_of(row.key_end)

    def read(self, reader: Reader) -> None:
        """Find the fields, unless they are found already. A merge's operand is not a value."""
        by = (reader.formats, reader.width)
        if self._read_by == by or self.op == _MERGE:
            return
        self._read_by = by
        self.bad = None
        row = self.parsed.row
        for image, values in ((self.was, row.before), (self.new, row.after)):
            record = reader.of_columns(values_of(values)) if values else None
            if isinstance(record, BadValue):
                self.bad, record = record, None
            image.record = record
        self.parsed.was, self.parsed.new = self.was.record, self.new.record

    def key_only(self) -> bytes:
        """Update bytes with operation and keys."""
        row = self.parsed.row
        return Row(op=row.op, key=row.key, old_key=row.old_key).SerializeToString()


class RunView:
    """A run with the parts that filters read. Keep one beside a run while flows are served from it, and drop it with
    the run.

    Each part is decoded on first use and then shared. Filters by table need none. Filters by operation or key need one
    pass. Fields that filters test are decoded for the updates whose key and operation do not decide. ``size``:
    approximate bytes of memory of these parts, after :meth:`forget` was called.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.size = 0
        self._records: dict[int, Record | BadValue] = {}
        self._read_by: tuple[object, int] | None = None
        self._parsed: dict[int, Head] = {}
        self._with_rows: list[Head] = []
        self._key_only: dict[int, bytes] = {}

    @property
    def ops(self) -> bytes:
        """The operation number (``wormhole.wire.v1.Op``) of each update; 0 for an operation that this version does not
        know.
        """
        return self._heads[0]

    @property
    def keys(self) -> list[bytes | Head]:
        """The key of each update: plain bytes when it is exactly one bytes value that the update did not change."""
        return self._heads[1]

    @property
    def moved(self) -> list[int]:
        """Ordinals of the updates that changed their key."""
        return self._heads[2]

    def head(self, i: int) -> Head:
        """The update as the parser reads it."""
        key = self.keys[i]
        if isinstance(key, Head):
            return key
        found = self._parsed.get(i)
        if found is None:
            begin, end = self._heads[3][i], self.run.ends[i]
            found = self._parsed[i] = self._parse(begin, end)
            self.size += 800 + end - begin
        return found

    def forget(self) -> None:
        """Release the parser's objects. Call it after the present filters have selected. A later filter makes them
        again if it needs them.
        """
        for head in self._with_rows:
            head.parsed.forget()
        self._with_rows.clear()

    def prepare(self, formats: ValueFormats) -> None:
        """Prepare for :meth:`record`: filters may test more fields than when the run was last read."""
        by = (formats, len(formats.paths))
        if by != self._read_by:
            self._records.clear()  # records are read again when a filter needs them
            self._read_by = by

    def record(self, i: int, key: bytes, reader: Reader) -> Record | BadValue:
        """The fields of an update with a plain key whose value has a format; empty if the log has no value."""
        found = self._records.get(i)
        if found is None:
            value = self._value(i, key)
            found = _UNKNOWN if value is None else reader.of_value(key, value)
            self._records[i] = found
            size = 150
            if type(found) is tuple:
                for field in found:
                    size += 40
                    if type(field) is str or type(field) is bytes:
                        size += len(field)
            self.size += size
        return found

    def key_only(self, i: int) -> bytes:
        """The update without its values, as one entry of a batch body."""
        found = self._key_only.get(i)
        if found is None:
            key = self.keys[i]
            if isinstance(key, Head):
                found = entry(key.key_only())
            else:
                begin = self._heads[3][i]
                found = entry(self.run.blob[begin : begin + 6 + len(key)])
            self._key_only[i] = found
            self.size += 80 + len(found)
        return found

    def _parse(self, begin: int, end: int) -> Head:
        head = Head(self.run.blob, begin, end)
        self._with_rows.append(head)
        return head

    def _value(self, i: int, key: bytes) -> bytes | None:
        """The bytes of `after`, if it is one bytes value and nothing follows: `1a len 0a len value`."""
        blob = self.run.blob
        begin, end = self._heads[3][i], self.run.ends[i]
        at = begin + 6 + len(key)
        if at == end:
            return None
        if blob[at] == 0x1A:
            at += 1
            while blob[at] > 0x7F:
                at += 1
            at += 1
            if at < end and blob[at] == 0x0A:
                length, shift = 0, 0
                at += 1
                while blob[at] > 0x7F:
                    length |= (blob[at] & 0x7F) << shift
                    shift += 7
                    at += 1
                length |= blob[at] << shift
                at += 1
                if at + length == end:
                    return blob[at:end]
        # Wide columns have names of their own, which no format describes. The column without a name is a value.
        after = values_of(decode_row(blob[begin:end]).after)
        return after[0] if after and isinstance(after[0], bytes) else None

    @cached_property
    def _heads(self) -> tuple[bytes, list[bytes | Head], list[int], array[int]]:
        # Finds operations, keys, the updates that changed their key, and where the update's own bytes begin, after tag
        # and length of the entry. Update bytes begin `08 op 12 len 0a len key`. Another 12 after that is the second
        # column of a composite key. Updates of another form (long keys, fields in another order) are left to the
        # protobuf parser.
        run = self.run
        blob = run.blob
        ops = bytearray(len(run.ends))
        keys: list[bytes | Head] = []
        moved: list[int] = []
        begins = array("I", bytes(4 * len(run.ends)))
        begin = 0
        simple = _SIMPLE_OPS
        for i, end in enumerate(run.ends):
            at = begin + 2
            if blob[begin + 1] > 0x7F:
                while blob[at - 1] > 0x7F:
                    at += 1
            begin = end
            begins[i] = at
            if end - at >= 6 and blob[at] == 0x08 and blob[at + 2] == 0x12 and blob[at + 4] == 0x0A:
                op, length = blob[at + 1], blob[at + 5]
                key_end = at + 6 + length
                if (
                    op in simple
                    and length < 0x7E
                    and blob[at + 3] == length + 2
                    and (key_end == end or (key_end < end and blob[key_end] != 0x12))
                ):
                    ops[i] = op
                    keys.append(blob[at + 6 : key_end])
                    continue
            head = self._parse(at, end)
            # An operation of a later version is delivered, whatever the filter (see `make_plan`): it is 0 there.
            ops[i] = head.op if 0 <= head.op <= 8 else 0
            if head.old is not None:
                moved.append(i)
            keys.append(head)
            self.size += 800 + end - at
        self.size += sum(60 + len(key) for key in keys if type(key) is bytes)
        return bytes(ops), keys, moved, begins
