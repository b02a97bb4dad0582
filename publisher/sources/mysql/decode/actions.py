"""What the encoder does with an event of each type, and why it stops."""

from __future__ import annotations

from typing import Final

from publisher.sources.mysql.decode import events

__all__ = ["ACTIONS", "VERSION_2", "Action", "Status"]


class Status:
    """Why the encoder stopped."""

    OK: Final = 0
    """Everything is consumed, or enough is encoded."""
    MORE: Final = 1
    """The data ends inside a packet; ``need`` bytes from the place where it stopped would hold more of the event (0:
    not known)."""
    EVENT: Final = 2
    """An event that the caller has to look at: ``raw``."""
    TABLE: Final = 3
    """A table map that is not known: ``raw``; `Encoder.add_table`, then go on."""
    TRANSACTION: Final = 4
    """A transaction ended, and ``single`` is set."""
    END: Final = 5
    """The server ended the stream."""
    ERROR: Final = 6
    """The server sent an error: ``raw``."""
    LARGE: Final = 7
    """A packet of an event that is too large to be held whole; `Encoder.large`."""
    ROWS: Final = 8
    """Rows of the last event are left: `Encoder.rows` is open for them, and ``raw`` begins with the first, where it
    is held."""


class Action:
    """What is done with an event."""

    HAND_BACK: Final = 0
    IGNORE: Final = 1
    GTID: Final = 2
    QUERY: Final = 3
    MAP: Final = 4
    XID: Final = 5
    ROWS: Final = 7
    """Added to what an update of the event is on the wire (`wormhole.wire.v1.Op`)."""


_INSERT, _UPDATE, _DELETE = Action.ROWS + 1, Action.ROWS + 2, Action.ROWS + 3

_BY_TYPE: Final = {
    **dict.fromkeys(
        (
            events.STOP,
            events.HEARTBEAT,
            events.HEARTBEAT_V2,
            events.IGNORABLE_EVENT,
            events.ROWS_QUERY,
            events.TRANSACTION_CONTEXT,
            events.VIEW_CHANGE,
            events.ANNOTATE_ROWS,
            events.BINLOG_CHECKPOINT,
        ),
        Action.IGNORE,
    ),
    **dict.fromkeys((events.GTID, events.ANONYMOUS_GTID, events.MARIADB_GTID), Action.GTID),
    events.QUERY: Action.QUERY,
    events.TABLE_MAP: Action.MAP,
    events.XID: Action.XID,
    events.WRITE_ROWS_V1: _INSERT,
    events.WRITE_ROWS_V2: _INSERT,
    events.UPDATE_ROWS_V1: _UPDATE,
    events.UPDATE_ROWS_V2: _UPDATE,
    events.PARTIAL_UPDATE_ROWS: _UPDATE,
    events.DELETE_ROWS_V1: _DELETE,
    events.DELETE_ROWS_V2: _DELETE,
}

ACTIONS: Final = bytes(_BY_TYPE.get(kind, Action.HAND_BACK) for kind in range(256))
"""`Action` by type."""

VERSION_2: Final = bytes(
    kind in {events.WRITE_ROWS_V2, events.UPDATE_ROWS_V2, events.DELETE_ROWS_V2, events.PARTIAL_UPDATE_ROWS}
    for kind in range(256)
)
"""1 by the type of rows events of the second version, which have extra data."""
