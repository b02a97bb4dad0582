"""Applies a log's updates to rows, in the form in which a table source has to return these rows."""

from __future__ import annotations

import time
from dataclasses import dataclass

from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import LIMIT_S
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row, encode_key, encode_row, op_of, values_of

__all__ = ["Image", "LogImages"]


@dataclass(frozen=True, slots=True)
class Image:
    """A row: the bytes of its READ update, its schema, and the shard in which its last update came."""

    row: bytes
    schema: Schema
    shard: str


class LogImages:
    """Follows a log from ``start``, where its tables are empty. Its updates have to be whole images and deletes.

    ``tables``: by table name in updates, the rows by key. ``marker``: the place of these rows.
    """

    def __init__(self, source: LogSource, start: Datamarker) -> None:
        self.tables: dict[str, dict[bytes, Image]] = {}
        self.marker = start
        self._source = source
        self._reader = source.open(start)

    def step(self) -> None:
        """Read one transaction, to the next datamarker, in the smallest pieces that the source makes."""
        limit = time.monotonic() + LIMIT_S
        before = self.marker
        while self.marker is before:
            segment = self._reader.read(1, 0.2)
            if segment is not None:
                self._add(segment)
                self.marker = segment.marker or before
            assert time.monotonic() < limit, f"nothing came after {self.marker} for {LIMIT_S:g} s"

    def read_on(self) -> Datamarker:
        """Read to the present end of the log. Returns its place."""
        end = self._source.latest().order
        while self.marker.order < end:
            self.step()
        return self.marker

    def rows(self, table: str) -> dict[bytes, bytes]:
        """The READ updates of a table by key."""
        return {key: image.row for key, image in self.tables.get(table, {}).items()}

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _add(self, segment: Segment) -> None:
        for shard, run in segment.runs.items():
            body = build_body(run, segment.end.incarnation)
            assert body is not None
            parsed = parse_body(body.data)
            schemas = {schema.id: schema for schema in run.schemas}
            for i, data in enumerate(parsed.updates):
                update, schema = decode_row(data), schemas[parsed.schema_id_of(i)]
                key = encode_key(values_of(update.key))
                rows = self.tables.setdefault(schema.table, {})
                if op_of(update) is Op.DELETE:
                    rows.pop(key, None)
                else:
                    row = encode_row(Op.READ, values_of(update.key), after=values_of(update.after))
                    rows[key] = Image(row, schema, shard)
