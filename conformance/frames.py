"""Builds the publisher's frames from the data of a case. Pure.

Defaults keep cases short. In place of a datamarker, a number means the datamarker after that transaction. In place of
an update, a number means an insert of the row with that key. A plain value of TOML means a value of its own type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from wormhole.model.schema import Column, Schema
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["body_of", "filled", "frame_of", "joined", "marker_of", "value_of", "verified_of"]

_FOUND: Final = ("compared", "not_compared", "differs", "missing", "extra", "repaired", "removed")
_MARKERS: Final = frozenset({"marker", "resume", "have"})


def marker_of(given: Any) -> push_pb2.Datamarker:
    """The datamarker after the transaction with the number ``given``, or the datamarker with these fields."""
    if not isinstance(given, int):
        return ParseDict(given, push_pb2.Datamarker())
    marker = push_pb2.Datamarker(order={"incarnation": 1, "file": 1, "offset": given}, delivered=str(given))
    if given:
        marker.anchor.id, marker.anchor.checksum = f"test:{given}", given
        marker.anchor.begin.CopyFrom(push_pb2.Position(incarnation=1, file=1, offset=given - 1))
    return marker


def filled(message: Any, given: Mapping[str, Any]) -> Any:
    """``message`` with these fields, in protobuf's JSON form; datamarkers also as numbers, and keys as plain values."""
    plain = {name: value for name, value in given.items() if name not in _MARKERS and not _is_key(message, name)}
    ParseDict(plain, message)
    for name in given.keys() - plain.keys():
        if name in _MARKERS:
            getattr(message, name).CopyFrom(marker_of(given[name]))
        elif name in {"except", "alone"}:
            getattr(message, name).extend(map(_key, given[name]))
        else:
            getattr(message, name).CopyFrom(_key(given[name]))
    return message


def _is_key(message: Message, name: str) -> bool:
    return isinstance(message, push_pb2.ChunkEnd) and name in {"after", "until", "except", "alone"}


def _key(given: Any) -> update_pb2.RowKey:
    if isinstance(given, Mapping):
        return ParseDict(dict(given), update_pb2.RowKey())
    return update_pb2.RowKey(values=[*map(value_of, _listed(given))])


def frame_of(kind: str, given: Mapping[str, Any]) -> push_pb2.PublisherFrame:
    """The publisher's frame of ``kind`` with these fields."""
    frame = push_pb2.PublisherFrame()
    filled(getattr(frame, kind), given)
    getattr(frame, kind).SetInParent()
    return frame


def joined(all_: push_pb2.Verified, one: push_pb2.Verified) -> None:
    """Add a frame to what was found so far. Differences are in order of their keys."""
    for name in _FOUND:
        setattr(all_, name, getattr(all_, name) + getattr(one, name))
    differences = sorted([*all_.differences, *one.differences], key=lambda found: found.key.SerializeToString())
    del all_.differences[:]
    all_.differences.extend(differences)
    all_.table, all_.ended, all_.confirm = one.table, one.ended, one.confirm
    all_.trouble = all_.trouble or one.trouble


def verified_of(given: Mapping[str, Any]) -> push_pb2.Verified:
    """What should be found. ``differences``: the kind of each, its key and the names of its columns."""
    found = push_pb2.Verified(table="t")
    for kind, key, *columns in given.get("differences", ()):
        row = update_pb2.RowKey(values=[value_of(key)])
        found.differences.append(push_pb2.Difference(kind=kind, key=row, columns=columns))
    return ParseDict({name: value for name, value in given.items() if name != "differences"}, found)


def value_of(given: Any) -> update_pb2.Value:
    """A value: a plain value of TOML has its own type, and any other value is written as ``{kind = content}``."""
    match given:
        case bool():
            return update_pb2.Value(bool=given)
        case int():
            return update_pb2.Value(int=given)
        case float():
            return update_pb2.Value(double=given)
        case str():
            return update_pb2.Value(text=given)
        case _:
            return ParseDict(dict(given), update_pb2.Value())


def _column_type(value: update_pb2.Value | None) -> str:
    """The type of a column that has ``value``; ``bytes`` if the value has no content."""
    kind = None if value is None else value.WhichOneof("kind")
    return "bytes" if kind in {None, "null", "unavailable"} else str(kind)


def _row_of(given: Any) -> tuple[Schema, update_pb2.Update, str]:
    """An update of a case: its schema, the update, and its mark. A number is an insert of the row with that key."""
    if isinstance(given, int):
        given = {"key": given, "after": {"v": f"v{given}"}}
    before, after = given.get("before"), given.get("after")
    default = "delete" if after is None else "insert" if before is None else "update"
    op = given.get("op", default)
    head = {"op": op.upper() if isinstance(op, str) else op, "too_large": given.get("too_large", False)}
    row = ParseDict(head, update_pb2.Update())
    for field in ("key", "old_key", "key_end"):
        getattr(row, field).extend(map(value_of, _listed(given.get(field, []))))
    names = [*dict.fromkeys((*(after or ()), *(before or ())))]
    for field, side in (("after", after), ("before", before)):
        if side is not None:
            getattr(row, field).extend(value_of(side.get(name, {"unavailable": True})) for name in names)
    columns = [Column(name, _typed(given, name, after, before)) for name in names]
    key_names = ["id"] if len(row.key) == 1 else [f"key{i}" for i in range(1, len(row.key) + 1)]
    key = [Column(name, _column_type(value)) for name, value in zip(key_names, row.key, strict=True)]
    return Schema(given.get("table", "t"), tuple(key), tuple(columns)), row, given.get("mark", "MARK_NONE")


def _typed(given: Mapping[str, Any], name: str, *rows: Mapping[str, Any] | None) -> str:
    if name in (types := given.get("types", {})):
        return str(types[name])
    found = [_column_type(value_of(row[name])) for row in rows if row is not None and name in row]
    return next((type_ for type_ in found if type_ != "bytes"), "bytes")


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list) else [given]


def body_of(
    transactions: Iterable[Mapping[str, Any]], *, ends: bool = True, first_index: int = 0
) -> tuple[update_pb2.BatchBody, list[Schema]]:
    """A body of ``transactions``, and its schemas in order of use.

    Each has ``tx`` and ``updates``, and may have ``source``, ``committed_at_us`` and ``indexes``. ``ends``: whether the
    last transaction ends here; otherwise its place is its beginning.
    """
    body = update_pb2.BatchBody(incarnation=1, first_index=first_index)
    schemas: dict[int, Schema] = {}
    marks: list[str] = []
    for one in transactions:
        for schema, row, mark in map(_row_of, one.get("updates", [])):
            schemas.setdefault(schema.id, schema)
            body.updates.append(row.SerializeToString())
            body.schema_index.append([*schemas].index(schema.id))
            marks.append(mark)
        body.update_index.extend(one.get("indexes", ()))
        source = one.get("source", "test")
        if source not in body.sources:
            body.sources.append(source)
        body.tx_source.append([*body.sources].index(source))
        body.tx_number.append(one["tx"])
        body.tx_file.append(1)
        body.tx_offset.append(one.get("offset", one["tx"]))
        body.tx_committed_at_us.append(one.get("committed_at_us", 0))
        body.tx_end.append(len(body.updates))
    body.schema_ids.extend(schemas)
    if {*marks} - {"MARK_NONE"}:
        ParseDict({"marks": marks}, body)
    if not ends:
        body.tx_end.pop()
        body.tx_offset[-1] -= 1
    return body, [*schemas.values()]
