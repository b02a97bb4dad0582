"""Finds the last update of a transaction whose updates come in several batches. Pure.

A large transaction comes in pieces. Its end may come in a batch without an update of this flow: the rest belonged to
another shard, or the filter dropped it. ``Update.ends_transaction`` has to be the same however the log was cut. So the
last update of an unfinished transaction waits for the next batch, and is delivered first in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wormhole.wire.body import ParsedBody, parse_body

__all__ = ["Endings"]


@dataclass(slots=True, frozen=True)
class _Transaction:
    source: str
    number: int
    file: int
    offset: int
    committed_at_us: int


@dataclass(slots=True, frozen=True)
class _Held:
    """The update that is held back, with its part of a body."""

    update: bytes
    schema_id: int
    index: int
    mark: int
    incarnation: int
    transaction: _Transaction


class Endings:
    """Holds back an update of one flow between two batches. All batches of an epoch pass through it, in order."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: _Held | None = None

    def pass_on(self, body: bytes, *, unfinished: bool) -> bytes:
        """The body to deliver. It lacks the last update of an ``unfinished`` transaction, and begins with the update
        that was held back before.

        Raises :class:`~wormhole.model.errors.ProtocolError` for bytes that are no body.
        """
        if not unfinished and self._held is None:
            return body
        parsed = parse_body(body)
        count, before = len(parsed.updates), None
        held, self._held = self._held, None
        if held is not None:
            parsed, count, before = _prepend(held, parsed), count + 1, held.update
        ended = parsed.tx_end[-1] if parsed.tx_end else 0
        if len(parsed.tx_end) < len(parsed.tx_number) and count > ended:
            self._held = _last(parsed, count - 1, parsed.updates[-1] if parsed.updates else before or b"")
            if not parsed.updates:
                before = None
            parsed = _without_last(parsed, count - 1)
        return parsed.to_bytes(before=before)

    def release(self) -> bytes | None:
        """A body with the update that is held back, which is the last of its transaction; ``None``: no update is."""
        held, self._held = self._held, None
        return None if held is None else _alone(held).to_bytes()


def _at(values: Sequence[int], i: int) -> int:
    return values[0] if len(values) == 1 else values[i]


def _transaction(body: ParsedBody, tx: int) -> _Transaction:
    source, _, _ = body.transaction_id(tx).rpartition(":")
    return _Transaction(
        source, body.tx_number[tx], _at(body.tx_file, tx), body.tx_offset[tx], _at(body.tx_committed_at_us, tx)
    )


def _alone(held: _Held) -> ParsedBody:
    tx = held.transaction
    return ParsedBody(
        (held.update,), (held.schema_id,), (), (held.index,), 0, (tx.source,), (), (tx.number,), held.incarnation,
        (tx.file,), (tx.offset,), (tx.committed_at_us,), (1,), (held.mark,) if held.mark else (),
    )  # fmt: skip


def _of(body: ParsedBody, transactions: Sequence[_Transaction]) -> ParsedBody:
    """The body with these transactions instead of its own."""
    sources = tuple(dict.fromkeys(tx.source for tx in transactions))
    return replace(
        body,
        sources=sources,
        tx_source=tuple(sources.index(tx.source) for tx in transactions),
        tx_number=tuple(tx.number for tx in transactions),
        tx_file=tuple(tx.file for tx in transactions),
        tx_offset=tuple(tx.offset for tx in transactions),
        tx_committed_at_us=tuple(tx.committed_at_us for tx in transactions),
        window=None,
    )


def _prepend(held: _Held, body: ParsedBody) -> ParsedBody:
    """The body with columns for one more update, which is its first.

    A column has an entry for each update only where necessary. Most bodies need one schema, and indexes that count up.
    """
    count = len(body.updates)
    first = _transaction(body, 0) if body.tx_number else None
    same = first is not None and (first.source, first.number) == (held.transaction.source, held.transaction.number)
    if body.update_index:
        counted = False
    elif not same:
        counted = not body.first_index
    else:
        counted = not count or body.tx_end[:1] == [0] or body.first_index == held.index + 1
    schema_ids, schema_index = _schemas(held.schema_id, body, count)
    longer = replace(
        body,
        schema_ids=schema_ids,
        schema_index=schema_index,
        update_index=() if counted else (held.index, *(body.index_of(i) for i in range(count))),
        first_index=held.index if counted else 0,
        tx_end=[end + 1 for end in body.tx_end],
        marks=(held.mark, *(body.mark_of(i) for i in range(count))) if held.mark or body.marks else (),
    )
    if same:
        return longer
    transactions = [_transaction(body, tx) for tx in range(len(body.tx_number))]
    return replace(_of(longer, [held.transaction, *transactions]), tx_end=[1, *longer.tx_end])


def _schemas(first: int, body: ParsedBody, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """``schema_ids`` and ``schema_index`` with an update of the schema ``first`` added in front."""
    if not count:
        return (first,), ()
    if len(body.schema_index) <= 1 and body.schema_id_of(0) == first:
        return body.schema_ids, body.schema_index
    own = ((_at(body.schema_index, i) if body.schema_index else 0) for i in range(count))
    return (*body.schema_ids, first), (len(body.schema_ids), *own)


def _last(body: ParsedBody, last: int, update: bytes) -> _Held:
    return _Held(
        update,
        body.schema_id_of(last),
        body.index_of(last),
        body.mark_of(last),
        body.incarnation,
        _transaction(body, len(body.tx_number) - 1),
    )


def _without_last(body: ParsedBody, last: int) -> ParsedBody:
    rest = replace(
        body,
        updates=body.updates[:-1],
        schema_index=body.schema_index if len(body.schema_index) <= 1 else body.schema_index[:last],
        update_index=body.update_index[:last],
        marks=body.marks[:last],
    )
    if last > (body.tx_end[-1] if body.tx_end else 0):
        return rest
    # No update of its transaction remains.
    return _of(rest, [_transaction(body, tx) for tx in range(len(body.tx_number) - 1)])
