"""Tables that give the encoder's action for each type of event, as a number."""

from __future__ import annotations

from typing import Final

from datastores.mysql.decode import events

__all__ = [
    "ACTIONS",
    "HAND_BACK",
    "PASS_OVER",
    "ROWS_EVENTS",
    "TAKE_GTID",
    "TAKE_MAP",
    "TAKE_QUERY",
    "TAKE_ROWS",
    "TAKE_XID",
    "VERSION_2",
]


HAND_BACK: Final = 0
PASS_OVER: Final = 1
TAKE_GTID: Final = 2
TAKE_QUERY: Final = 3
TAKE_MAP: Final = 4
TAKE_XID: Final = 5
TAKE_ROWS: Final = 7
"""The actions for rows are this number plus the update's operation (`wormhole.wire.v1.Op`)."""

_INSERT, _UPDATE, _DELETE = TAKE_ROWS + 1, TAKE_ROWS + 2, TAKE_ROWS + 3

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
        PASS_OVER,
    ),
    **dict.fromkeys((events.GTID, events.ANONYMOUS_GTID, events.MARIADB_GTID), TAKE_GTID),
    events.QUERY: TAKE_QUERY,
    events.TABLE_MAP: TAKE_MAP,
    events.XID: TAKE_XID,
    events.WRITE_ROWS_V1: _INSERT,
    events.WRITE_ROWS_V2: _INSERT,
    events.UPDATE_ROWS_V1: _UPDATE,
    events.UPDATE_ROWS_V2: _UPDATE,
    events.PARTIAL_UPDATE_ROWS: _UPDATE,
    events.DELETE_ROWS_V1: _DELETE,
    events.DELETE_ROWS_V2: _DELETE,
}

ACTIONS: Final = bytes(_BY_TYPE.get(kind, HAND_BACK) for kind in range(256))
"""The action for each event type."""

VERSION_2: Final = bytes(
    kind in {events.WRITE_ROWS_V2, events.UPDATE_ROWS_V2, events.DELETE_ROWS_V2, events.PARTIAL_UPDATE_ROWS}
    for kind in range(256)
)
"""1 for each type of rows events of version 2, which have extra data."""

ROWS_EVENTS: Final = frozenset(kind for kind, action in _BY_TYPE.items() if action > TAKE_ROWS)
"""The types of uncompressed rows events."""
