"""Converts datamarkers and places to protobuf messages and bytes, and back."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import ProtocolError
from wormhole.model.position import Anchor, Datamarker, LastAck, LogPosition
from wormhole.wire.v1 import push_pb2

__all__ = [
    "MOST_BACKFILL",
    "ack_from_message",
    "ack_to_message",
    "marker_from_bytes",
    "marker_from_message",
    "marker_to_bytes",
    "marker_to_message",
    "position_from_message",
    "position_to_message",
]


MOST_BACKFILL: Final = 16 << 10
"""Limit in bytes of a flow's backfill progress in a datamarker."""


def position_to_message(position: LogPosition) -> push_pb2.Position:
    """A place as a message."""
    return push_pb2.Position(incarnation=position.incarnation, file=position.file, offset=position.offset)


def position_from_message(message: push_pb2.Position) -> LogPosition:
    """Inverse of :func:`position_to_message`."""
    return LogPosition(message.incarnation, message.file, message.offset)


def ack_to_message(ack: LastAck | None) -> push_pb2.LastAck | None:
    """A flow's last acknowledgement as a message; ``None`` stays ``None``."""
    return None if ack is None else push_pb2.LastAck(move=ack.move, order=position_to_message(ack.order))


def ack_from_message(message: push_pb2.LastAck) -> LastAck | None:
    """Inverse of :func:`ack_to_message`."""
    return LastAck(message.move, position_from_message(message.order)) if message.HasField("order") else None


def marker_to_message(marker: Datamarker) -> push_pb2.Datamarker:
    """A datamarker as a message; ``read_from`` is left out where it equals ``order``."""
    message = push_pb2.Datamarker(
        order=position_to_message(marker.order), delivered=marker.delivered, committed_at_us=marker.committed_at_us
    )
    if marker.backfill:
        message.backfill = marker.backfill
    if marker.read_from != marker.order:
        message.read_from.CopyFrom(position_to_message(marker.read_from))
    if marker.anchor is not None:
        message.anchor.id = marker.anchor.id
        message.anchor.checksum = marker.anchor.checksum
        message.anchor.begin.CopyFrom(position_to_message(marker.anchor.begin))
    return message


def marker_from_message(message: push_pb2.Datamarker) -> Datamarker:
    """Inverse of :func:`marker_to_message`.

    Raises :class:`~wormhole.model.errors.ProtocolError` when the place is missing.
    """
    if not message.HasField("order"):
        raise ProtocolError("datamarker: order is missing")
    order = position_from_message(message.order)
    anchor = None
    if message.HasField("anchor"):
        anchor = Anchor(message.anchor.id, message.anchor.checksum, position_from_message(message.anchor.begin))
    read_from = position_from_message(message.read_from) if message.HasField("read_from") else order
    if len(message.backfill) > MOST_BACKFILL:
        raise ProtocolError(
            f"datamarker: backfill has {len(message.backfill)} bytes; at most {MOST_BACKFILL} are taken"
        )
    return Datamarker(order, message.delivered, read_from, anchor, message.committed_at_us, message.backfill)


def marker_to_bytes(marker: Datamarker) -> bytes:
    """The stored form: equal markers give equal bytes."""
    return marker_to_message(marker).SerializeToString(deterministic=True)


def marker_from_bytes(data: bytes) -> Datamarker:
    """Inverse of :func:`marker_to_bytes`. Raises :class:`~wormhole.model.errors.ProtocolError` for other bytes."""
    try:
        return marker_from_message(push_pb2.Datamarker.FromString(data))
    except ProtobufDecodeError as error:
        raise ProtocolError(f"stored datamarker is no valid message: {error}") from error
