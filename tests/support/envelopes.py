"""Records as values that tests compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sinks.records import Envelope
from subscriber_sdk import Update
from subscriber_sdk.testing import Change, body_of
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch

__all__ = ["COMMITTED_US", "Made", "made", "updates_of"]

COMMITTED_US = 1_795_930_200_123_456


class Made(NamedTuple):
    """A record with its documents read; ``None``: there is none."""

    id: str
    table: str
    key: Any
    value: Any


def updates_of(changes: Sequence[Change], committed_us: int = COMMITTED_US, *, ends: bool = True) -> list[Update]:
    """The changes as one transaction of the shard ``db1``, or as a piece of one."""
    schemas = {change.schema.id: change.schema for change in changes}
    body = parse_body(body_of(changes, source="0-1", number=42, committed_at_us=committed_us, ends=ends))
    return Batch(body, "db1", 1, False, schemas.__getitem__).updates()


def made(envelope: Envelope, updates: Iterable[Update]) -> list[Made]:
    """What the envelope makes of the updates."""
    return [
        Made(
            record.id,
            record.table,
            json.loads(record.key) if record.key else None,
            None if record.value is None else json.loads(record.value),
        )
        for update in updates
        for record in envelope.records(update)
    ]
