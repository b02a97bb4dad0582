"""Builds the body and the id of a request from records. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from sinks.records import Record

__all__ = ["Message", "Origin", "message"]


class Message(NamedTuple):
    """One request. ``id``: ASCII without a full stop, as Standard Webhooks demands."""

    id: str
    body: bytes


class Origin(NamedTuple):
    """The origin of records. ``epoch``: rises whenever the shard is assigned. ``move``: the number of the last move of
    the shard's datamarker that was not an acknowledgement.
    """

    application: str
    shard: str
    epoch: int
    move: int

    def id_of(self, record: Record) -> str:
        """The id of a record, the same at every repetition. After an operator moved the datamarker the id differs, so
        that the receiver does not drop the records that the operator wants to have sent again.
        """
        named = f"{self.application}/{quote(self.shard, safe='')}/{quote(record.id, safe=':/')}/{self.move}"
        return named.replace(".", "%2E")


def message(origin: Origin, records: Sequence[Record]) -> Message:
    """The request with these records. The id of the request is the id of its only record, or a hash of all ids."""
    ids = [origin.id_of(record) for record in records]
    items = b",".join(
        b'{"id":%s,"table":%s,"key":%s,"value":%s}'
        % (_text(id_), _text(record.table), record.key or b"null", b"null" if record.value is None else record.value)
        for id_, record in zip(ids, records, strict=True)
    )
    head = b'{"type":"updates","application":%s,"shard":%s,"epoch":%d,"data":['
    body = head % (_text(origin.application), _text(origin.shard), origin.epoch) + items + b"]}"
    return Message(ids[0] if len(ids) == 1 else f"batch/{hashlib.sha256(' '.join(ids).encode()).hexdigest()}", body)


def _text(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()
