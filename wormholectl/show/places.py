"""Formats a place of a publisher's log for people and for programs."""

from __future__ import annotations

from wormhole.config.datastores import native_place as native
from wormhole.model.position import LogPosition
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["Status", "native_place", "place_text", "shown_place"]

Status = admin_pb2.PublisherStatus


def place_text(message: push_pb2.Position) -> str:
    """A place as text: ``1/42/32768``."""
    return str(_position(message))


def native_place(status: Status, message: push_pb2.Position) -> str | None:
    """A place of a publisher's log in the form of the datastore's own tools. ``None``: the datastore has no form of
    its own, or the place is in an earlier incarnation of the log, where a file may have had the name of a present one.
    """
    if not status.HasField("log_end") or message.incarnation != status.log_end.incarnation:
        return None
    return native(status.source, _position(message), status.log_base) or None


def shown_place(status: Status, message: push_pb2.Position) -> str:
    """A place for people, in Wormhole's form and in the datastore's form."""
    there = native_place(status, message)
    return f"{place_text(message)} ({there})" if there else place_text(message)


def _position(message: push_pb2.Position) -> LogPosition:
    return LogPosition(message.incarnation, message.file, message.offset)
