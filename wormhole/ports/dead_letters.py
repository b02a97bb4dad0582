"""The port (interface) of the stores of dead letters, and the pure rules of parking. ``tests/contract`` runs one suite
over every store.

An update whose handler exhausted its retries is *parked*: it becomes a dead letter, stored beside the datamarkers with
all that is needed to deliver it again. Later updates of the same row have to be parked too, because the row's changes
would otherwise be delivered out of order. So each parked row is stored with the place of its first parked update. An
earlier update of the row that is redelivered is not parked.

A TRUNCATE or DELETE_RANGE touches many rows, and an update of a table without a key may touch any row. Such an update
is parked if any row of its table is parked. While it is parked, the whole table is parked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Protocol
from urllib.parse import quote

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import ProtocolError
from wormhole.model.flow_key import FlowKey
from wormhole.model.position import LogPosition
from wormhole.model.reads import read_order
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = [
    "DeadLetter",
    "DeadLetterStore",
    "Parcel",
    "ParkedRows",
    "UpdatePlace",
    "bound_together",
    "for_receiver",
    "in_order",
    "marked",
    "open_parcel",
    "parked_rows",
    "place_from_message",
    "place_of",
    "place_to_message",
    "row_text",
    "rows_from_messages",
    "rows_to_messages",
    "with_letter",
    "wrap",
]


@dataclass(slots=True, frozen=True)
class UpdatePlace:
    """The place of an update in its flow, independent of the limits of batches; see push.proto.

    ``inside``: the batch of the update does not contain the end of its transaction, so ``position`` is where the
    transaction begins.
    """

    position: LogPosition
    inside: bool
    transaction: str
    index: int

    def before(self, other: UpdatePlace) -> bool:
        """Whether this place is before ``other`` in the log."""
        if self.transaction == other.transaction:
            return self.index < other.index
        mine, theirs = read_order(self.transaction), read_order(other.transaction)
        return (self.position, self.inside, mine) < (other.position, other.inside, theirs)


@dataclass(slots=True, frozen=True)
class DeadLetter:
    """A parked update (a letter, for short) without its bytes.

    ``rows``: serialized ``RowKey`` of each row that it touches. ``parked_by``: the subscriber that parked it. Only this
    subscriber may receive it again; empty: any subscriber that has the flow may. ``parked_at``: seconds since 1970.
    ``error``: the error of its last attempt; empty: it was parked because an earlier update of its row is parked.
    ``retrying``: it has to be delivered again. ``size``: bytes of its parcel.
    """

    id: str
    place: UpdatePlace
    rows: tuple[bytes, ...]
    op: str
    parked_at: float
    error: str
    retrying: bool
    size: int
    parked_by: str = ""


@dataclass(slots=True, frozen=True)
class Parcel:
    """The bytes to deliver an update again: its schema's canonical bytes, and a batch body of this one update."""

    schema: bytes
    body: bytes


class DeadLetterStore(Protocol):
    """Parked updates of one log, beside its datamarkers. The marker store that returned it opens, closes and owns it.

    Methods may block: call them in a thread. They raise the errors of the marker store. What a method wrote is durable
    when it returns. ``largest``: the limit for the bytes of one parcel; ``most_bytes``: for all parcels of one flow.
    """

    largest: int
    most_bytes: int

    def load(self, flow: FlowKey) -> tuple[DeadLetter, ...]:
        """All letters of the flow, in the order of the log."""

    def parked(self, flows: Collection[FlowKey]) -> Collection[FlowKey]:
        """Those of ``flows`` that may have letters. The other flows have none."""

    def read(self, flow: FlowKey, id_: str) -> Parcel:
        """A letter's bytes. Raises ``KeyError``."""

    def park(self, flow: FlowKey, epoch: int, letter: DeadLetter, parcel: Parcel) -> None:
        """Store a letter. It replaces a letter with the same id.

        Raises :class:`~wormhole.model.errors.EpochRefused` unless ``epoch`` is the flow's epoch.
        """

    def retry(self, flow: FlowKey, ids: Sequence[str], *, anyone: bool = False) -> None:
        """Mark letters to be delivered again; with ``anyone``, to any subscriber that has the flow.

        Ids without a letter are ignored.
        """

    def remove(self, flow: FlowKey, ids: Sequence[str], epoch: int | None = None) -> None:
        """Delete letters. Ids without a letter are ignored.

        With ``epoch``: raises :class:`~wormhole.model.errors.EpochRefused` unless it is the flow's epoch.
        """

    def forget(self, flow: FlowKey) -> None:
        """Delete all letters of the flow."""


# --- rows
# ----------------------------------------------------------------------------------------------------------------


def _row(key: update_pb2.RowKey) -> bytes:
    return key.SerializeToString(deterministic=True)


def _whole(row: bytes) -> bytes:
    """The key that stands for the whole table of ``row``."""
    return _row(update_pb2.RowKey(table=update_pb2.RowKey.FromString(row).table, whole=True))


def row_text(row: bytes) -> str:
    """A row as operators write it: ``table:value,value``, or ``table:*`` for a whole table. Bytes are hexadecimal."""
    key = update_pb2.RowKey.FromString(row)
    return f"{quote(key.table, safe='.$')}:" + ("*" if key.whole else ",".join(map(_value_text, key.values)))


def _value_text(value: update_pb2.Value) -> str:
    kind = value.WhichOneof("kind")
    match kind:
        case "bytes":
            return "0x" + value.bytes.hex()
        case "text":
            return quote(value.text, safe=" @.:+")
        case None | "null" | "unavailable":
            return kind or "null"
        case _:
            return quote(str(getattr(value, kind)))


class ParkedRows:
    """The rows that have parked updates, each with the place of its first one. Pure. The rows only grow in number."""

    __slots__ = ("_first", "_tables", "tables")

    def __init__(self, rows: Iterable[tuple[bytes, UpdatePlace]] = ()) -> None:
        self._first: dict[bytes, UpdatePlace] = {}
        self._tables: dict[bytes, UpdatePlace] = {}  # key of the whole table -> the first place of any of its rows
        self.tables: set[str] = set()
        """Names of the tables with parked updates."""
        for row, place in rows:
            self._add(row, place)

    def __len__(self) -> int:
        return len(self._first)

    def items(self) -> Iterable[tuple[bytes, UpdatePlace]]:
        """The rows, each with the place of its first parked update."""
        return self._first.items()

    def add(self, rows: Iterable[bytes], place: UpdatePlace) -> None:
        """Record that an update of ``rows`` is parked."""
        for row in rows:
            self._add(row, place)

    def hold(self, rows: Iterable[bytes], place: UpdatePlace) -> bool:
        """Whether an update of ``rows`` at ``place`` has to be parked."""
        for row in rows:
            whole = _whole(row)
            # An update of the whole table waits for every parked row of it. An update of a row waits for that row and
            # for the whole table.
            earlier = [self._tables.get(row)] if row == whole else [self._first.get(row), self._first.get(whole)]
            if any(first is not None and not place.before(first) for first in earlier):
                return True
        return False

    def keys_of(self, table: str) -> list[update_pb2.RowKey]:
        """The parked rows of one table. An entry without values is the whole table."""
        rows = map(update_pb2.RowKey.FromString, self._first)
        return [row for row in rows if row.table == table]

    def _add(self, row: bytes, place: UpdatePlace) -> None:
        self.tables.add(update_pb2.RowKey.FromString(row).table)
        for places, key in ((self._first, row), (self._tables, _whole(row))):
            known = places.get(key)
            if known is None or place.before(known):
                places[key] = place


def parked_rows(letters: Iterable[DeadLetter], *, also_retried: bool = False) -> ParkedRows:
    """The rows that ``letters`` block. Letters that are being delivered again block none, unless ``also_retried``."""
    holding = (letter for letter in letters if also_retried or not letter.retrying)
    return ParkedRows((row, letter.place) for letter in holding for row in letter.rows)


def in_order(letters: Iterable[DeadLetter]) -> tuple[DeadLetter, ...]:
    """The letters in the order of the log."""

    def compare(a: DeadLetter, b: DeadLetter) -> int:
        return -1 if a.place.before(b.place) else 1 if b.place.before(a.place) else 0

    return tuple(sorted(letters, key=cmp_to_key(compare)))


def marked(letter: DeadLetter, *, anyone: bool) -> DeadLetter:
    """The letter, marked to be delivered again; with ``anyone``, to any subscriber that has the flow."""
    return replace(letter, retrying=True, parked_by="" if anyone else letter.parked_by)


def for_receiver(letters: tuple[DeadLetter, ...], receiver: str) -> tuple[DeadLetter, ...]:
    """``letters`` with the marks that apply while the subscriber ``receiver`` has the flow.

    Letters of another subscriber stay parked, and so do the letters bound to them (:func:`bound_together`). The reason:
    nothing proves that the log ever held such an update.
    """
    foreign = [letter.id for letter in letters if letter.retrying and letter.parked_by not in ("", receiver)]
    if not foreign:
        return letters
    held = frozenset(bound_together(letters, foreign))
    return tuple(replace(letter, retrying=False) if letter.id in held else letter for letter in letters)


def with_letter(letters: tuple[DeadLetter, ...], letter: DeadLetter) -> tuple[DeadLetter, ...]:
    """``letters``, which are in log order, with ``letter`` inserted at its place."""
    at = len(letters)
    while at and letter.place.before(letters[at - 1].place):  # most letters come in log order
        at -= 1
    return (*letters[:at], letter, *letters[at:])


def bound_together(letters: Sequence[DeadLetter], chosen: Iterable[str]) -> tuple[str, ...]:
    """Ids of the ``chosen`` letters and of all letters that share a row with them, directly or through other letters.

    They are delivered again only together, because otherwise the order of a row's updates would be lost.
    """
    taken = {letter.id: letter for letter in letters if letter.id in set(chosen)}
    rows: set[bytes] = set()
    tables: set[bytes] = set()
    grown = -1
    while grown != len(taken):
        grown = len(taken)
        for letter in taken.values():
            rows.update(letter.rows)
            tables.update(map(_whole, letter.rows))
        for letter in letters:
            if letter.id not in taken and any(
                row in rows or _whole(row) in rows or (row == _whole(row) and row in tables) for row in letter.rows
            ):
                taken[letter.id] = letter
    return tuple(letter.id for letter in letters if letter.id in taken)


# --- places and parcels
# --------------------------------------------------------------------------------------------------


def place_of(update: Update) -> UpdatePlace:
    """The place of the update."""
    return UpdatePlace(update.position, update.in_unfinished, update.transaction.id, update.index)


def place_to_message(place: UpdatePlace) -> push_pb2.UpdatePlace:
    """A place as a message."""
    position = push_pb2.Position(
        incarnation=place.position.incarnation, file=place.position.file, offset=place.position.offset
    )
    return push_pb2.UpdatePlace(
        position=position, inside=place.inside, transaction=place.transaction, index=place.index
    )


def place_from_message(message: push_pb2.UpdatePlace) -> UpdatePlace:
    """Inverse of :func:`place_to_message`."""
    position = LogPosition(message.position.incarnation, message.position.file, message.position.offset)
    return UpdatePlace(position, message.inside, message.transaction, message.index)


def rows_to_messages(rows: Iterable[tuple[bytes, UpdatePlace]]) -> Iterator[push_pb2.ParkedKey]:
    """Parked rows, each with the place of its first parked update, as messages."""
    for row, place in rows:
        yield push_pb2.ParkedKey(key=update_pb2.RowKey.FromString(row), first=place_to_message(place))


def rows_from_messages(messages: Iterable[push_pb2.ParkedKey]) -> tuple[tuple[bytes, UpdatePlace], ...]:
    """Inverse of :func:`rows_to_messages`."""
    return tuple((_row(message.key), place_from_message(message.first)) for message in messages)


def wrap(update: Update) -> Parcel:
    """The parcel from which ``update`` is delivered again."""
    schema, body = update.encoded()
    return Parcel(schema.canonical, body)


def open_parcel(parcel: Parcel, shard: str = "", epoch: int = 0) -> Update:
    """The update in a parcel.

    Raises :class:`~wormhole.model.errors.ProtocolError` unless the parcel holds exactly one update whose row can be
    read.
    """
    try:
        schema = Schema.from_canonical(parcel.schema)
    except (ProtobufDecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"park.schema: no valid Schema: {error}") from error
    body = parse_body(parcel.body)
    if len(body.updates) != 1 or list(body.schema_ids) != [schema.id]:
        raise ProtocolError(
            f"park.body: {len(body.updates)} updates with schemas {list(body.schema_ids)}; one with its own is needed"
        )
    return Batch(body, shard, epoch, True, lambda _: schema).updates()[0]
