"""Carries an update that has to be parked to the store: cuts it into frames, puts these together, and opens it. Pure.

From its first frame until it is stored or dropped, its bytes count against its peer's share of memory
(:mod:`wormhole.push.room`). A thread joins its pieces and opens it, because that takes a while if it is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.ports.dead_letters import (
    DeadLetter,
    Parcel,
    UpdatePlace,
    open_parcel,
    place_from_message,
    place_to_message,
)
from wormhole.push.room import Room, Share
from wormhole.wire.bounds import (
    MOST_PARCEL_FIELDS,
    MOST_SCHEMA_BYTES,
    check_fields,
    check_name,
    fields,
    shortened,
)
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["MOST_BYTES", "Arrived", "Arriving", "open_letter", "park_frames"]

MOST_BYTES = 160 << 20
"""Limit in bytes of the body of one parked update. It is more than a publisher ever sends."""
_LEAST_HELD: Final = 8 << 10  # memory that the smallest update is counted as
_SMALL_PIECE: Final = (
    16 << 10
)  # a smaller piece is joined with the next one, as an object for it costs more than its bytes
_MOST_BESIDE: Final = 64  # fields of a body beside its update: one update in one transaction has one of each
_LEAST_FIELD: Final = 2  # bytes of the smallest field, so that the size bounds the number of fields
_UPDATES: Final = update_pb2.BatchBody.DESCRIPTOR.fields_by_name["updates"].number
_VALUES: Final = frozenset(
    field.number for field in update_pb2.Update.DESCRIPTOR.fields if field.message_type is not None
)
_ENTRIES: Final = update_pb2.Value.DESCRIPTOR.fields_by_name["entries"].number


def park_frames(update_id: str, parcel: Parcel, place: UpdatePlace, error: str, piece: int) -> Iterator[push_pb2.Park]:
    """Frames of one update, with at most ``piece`` bytes of its body each; the caller fills in flow and epoch."""
    starts = range(0, len(parcel.body), piece)
    for start in starts:
        frame = push_pb2.Park(update_id=update_id, body=parcel.body[start : start + piece])
        if start == starts[-1]:
            frame.schema, frame.error = parcel.schema, error
            frame.place.CopyFrom(place_to_message(place))
        else:
            frame.more = True
        yield frame


@dataclass(frozen=True, slots=True)
class Arrived:
    """A complete update, not opened.

    ``pieces``: its body. ``size``: bytes that ``room`` holds for it until :meth:`done`.
    """

    update_id: str
    place: UpdatePlace
    error: str
    schema: bytes
    pieces: Sequence[bytes]
    room: Share
    size: int

    def done(self) -> None:
        """Give back the memory: the update was stored, or is not needed any more. Call it once."""
        self.room.give(self.size)


@dataclass(slots=True)
class Arriving:
    """The received part of an update. The updates of a flow arrive one after the other. ``room``: the room of the peer
    that sends it.
    """

    room: Share = field(default_factory=lambda: Room(MOST_BYTES).share(lambda error: None))
    _id: str = ""
    _pieces: list[bytes] = field(default_factory=list)  # not joined: the event loop would copy many bytes
    _held: int = 0

    def take(self, frame: push_pb2.Park, flow: str, body: bytes = b"") -> Arrived | None:
        """Add the next frame. Returns the update once it is complete. ``flow``: its name, for messages. ``body``: the
        body of the frame, if it was taken out of the frame.

        Raises :class:`~wormhole.model.errors.ProtocolError`, which names the field.
        """
        known = self._id or check_name(frame.update_id, "park.update_id")
        if known != frame.update_id or not known:
            given = shortened(frame.update_id)
            raise ProtocolError(f"park.update_id: {given!r} comes amid the frames of {known!r} of {flow}")
        piece = body or frame.body  # each access makes a copy
        if self._held + len(piece) > MOST_BYTES:
            raise ProtocolError(f"park.body: {self._held + len(piece)} bytes of {flow}; at most {MOST_BYTES} are taken")
        self.room.take(len(piece))
        self._id = known
        self._held += len(piece)
        if self._pieces and len(self._pieces[-1]) < _SMALL_PIECE:
            self._pieces[-1] += piece
        else:
            self._pieces.append(piece)
        if frame.more:
            return None
        if not frame.HasField("place") or not frame.schema:
            raise ProtocolError(f"park: place or schema is missing for {known} of {flow}")
        if len(frame.schema) > MOST_SCHEMA_BYTES:
            raise ProtocolError(f"park.schema: {len(frame.schema)} bytes; at most {MOST_SCHEMA_BYTES} are taken")
        check_name(frame.place.transaction, "park.place.transaction")
        schema = frame.schema
        self.room.take(_LEAST_HELD + len(schema))
        pieces, size = self._pieces, self._held + _LEAST_HELD + len(schema)
        self._id, self._pieces, self._held = "", [], 0
        place, error = place_from_message(frame.place), shortened(frame.error)
        return Arrived(known, place, error, schema, pieces, self.room, size)

    def drop(self) -> None:
        """Drop the received part: the rest does not arrive."""
        self.room.give(self._held)
        self._id, self._pieces, self._held = "", [], 0


def open_letter(arrived: Arrived, flow: str) -> tuple[DeadLetter, Parcel]:
    """The letter, without the time at which it was parked, and the parcel that delivers the update again. Takes a while
    for a large update.

    Raises :class:`~wormhole.model.errors.ProtocolError`, which names the field.
    """
    parcel = Parcel(arrived.schema, b"".join(arrived.pieces))
    _check(parcel)
    try:
        update = open_parcel(parcel)
        rows, op = update.rows(), update.op.value
    except DecodeError as error:
        raise ProtocolError(f"park.body: {error.message}") from error
    if update.id != arrived.update_id:
        raise ProtocolError(f"park.body: update {shortened(update.id)} in the frames of {arrived.update_id} of {flow}")
    size = len(parcel.schema) + len(parcel.body)
    return DeadLetter(arrived.update_id, arrived.place, rows, op, 0.0, arrived.error, False, size), parcel


def _check(parcel: Parcel) -> None:
    """Count the fields of the parcel before it is parsed, because two bytes can become an object of fifty bytes."""
    check_fields(parcel.schema, MOST_PARCEL_FIELDS, "park.schema")
    body, left = memoryview(parcel.body), MOST_PARCEL_FIELDS
    for number, begin, end in fields(body, _MOST_BESIDE, "park.body"):
        if number == _UPDATES:
            left = _count_values(body[begin:end], left)
        elif end - begin > MOST_PARCEL_FIELDS:
            raise ProtocolError(f"park.body: field {number} has {end - begin} bytes; one update needs a few")


def _count_values(update: memoryview, left: int) -> int:
    """``left`` without the number of fields of an update, of its values, and of the entries of a value."""
    if len(update) <= _LEAST_FIELD * left:  # counting 60,000 fields takes longer than parsing them
        return left - len(update) // _LEAST_FIELD
    for number, begin, end in fields(update, left, "park.body"):
        left -= 1
        if number not in _VALUES:
            continue
        value = update[begin:end]
        for kind, from_, to in fields(value, left, "park.body"):
            left -= 1
            if kind == _ENTRIES:
                left -= sum(1 for _ in fields(value[from_:to], left, "park.body"))
    return left
