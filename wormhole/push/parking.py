"""An update that is to be parked, on its way to who stores it: cut into frames, and put together again. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from wormhole.dead_letters import (
    DeadLetter,
    Parcel,
    UpdatePlace,
    open_parcel,
    place_from_message,
    place_to_message,
)
from wormhole.errors import DecodeError, ProtocolError
from wormhole.wire.v1 import push_pb2

__all__ = ["MOST_BYTES", "Arriving", "park_frames"]

MOST_BYTES = 160 << 20
"""Of the body of one update that a subscriber wants to be parked: more than any that is ever sent."""


def park_frames(update_id: str, parcel: Parcel, place: UpdatePlace, error: str, piece: int) -> Iterator[push_pb2.Park]:
    """Frames of one update, with at most ``piece`` bytes of its body each; flow and epoch are the caller's to fill in."""
    starts = range(0, len(parcel.body), piece)
    for start in starts:
        frame = push_pb2.Park(update_id=update_id, body=parcel.body[start : start + piece])
        if start == starts[-1]:
            frame.schema, frame.error = parcel.schema, error
            frame.place.CopyFrom(place_to_message(place))
        else:
            frame.more = True
        yield frame


@dataclass(slots=True)
class Arriving:
    """What has come of an update so far, one after the other of a flow."""

    _id: str = ""
    _body: bytearray = field(default_factory=bytearray)

    def take(self, frame: push_pb2.Park, flow: str) -> tuple[DeadLetter, Parcel] | None:
        """The next frame; the update, but for the time, once it is whole. ``flow``: its name, for messages.

        Raises :class:`~wormhole.errors.ProtocolError` naming the field.
        """
        known = self._id or frame.update_id
        if known != frame.update_id or not known:
            raise ProtocolError(f"park.update_id: {frame.update_id!r} comes amid the frames of {known!r} of {flow}")
        if len(self._body) + len(frame.body) > MOST_BYTES:
            raise ProtocolError(
                f"park.body: {len(self._body) + len(frame.body)} bytes of {flow}; at most {MOST_BYTES} are taken"
            )
        self._id = known
        self._body += frame.body
        if frame.more:
            return None
        body, self._id, self._body = bytes(self._body), "", bytearray()
        if not frame.HasField("place") or not frame.schema:
            raise ProtocolError(f"park: place or schema is missing for {known} of {flow}")
        parcel = Parcel(frame.schema, body)
        try:
            update = open_parcel(parcel)
            rows, op = update.rows(), update.op.value
        except DecodeError as error:
            raise ProtocolError(f"park.body: {error.message}") from error
        if update.id != known:
            raise ProtocolError(f"park.body: update {update.id} in the frames of {known} of {flow}")
        size = len(parcel.schema) + len(parcel.body)
        return DeadLetter(known, place_from_message(frame.place), rows, op, 0.0, frame.error, False, size), parcel
