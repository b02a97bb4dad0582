"""Chunks of existing rows of a store, as the archiver receives them."""

from __future__ import annotations

from dataclasses import replace

from subscriber_sdk.testing import Change, body_of
from tests.support.archives import KEYS, STEP, marker_at
from wormhole.model.position import Datamarker
from wormhole.model.reads import read_source
from wormhole.model.values import Op
from wormhole.wire.body import parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.update import Batch, Update

__all__ = ["chunk", "progressed"]


def chunk(at: int, number: int, *rows: tuple[bytes, bytes], scan: int = 1) -> list[Update]:
    """Rows that were read at the place after transaction ``at``, as chunk ``number``."""
    changes = [Change(KEYS, encode_row(Op.READ, [key], after=[value])) for key, value in rows]
    body = parse_body(body_of(changes, source=read_source(scan), number=number, offset=STEP * at))
    return Batch(body, "a", 1, False, {KEYS.id: KEYS}.__getitem__).updates()


def progressed(number: int, backfill: bytes = b"") -> Datamarker:
    """The datamarker after transaction ``number``, with how far a backfill came."""
    return replace(marker_at(number), backfill=backfill)
