"""Which events the encoder takes by itself: what it does not know is never passed over."""

from __future__ import annotations

from datastores.mysql.decode import events
from datastores.mysql.decode.actions import ACTIONS, HAND_BACK, PASS_OVER


def test_only_what_is_named_here_is_passed_over() -> None:
    ignored = {kind for kind in range(256) if ACTIONS[kind] == PASS_OVER}
    assert ignored == {
        *(events.STOP, events.HEARTBEAT, events.HEARTBEAT_V2, events.IGNORABLE_EVENT, events.ROWS_QUERY),
        *(events.TRANSACTION_CONTEXT, events.VIEW_CHANGE, events.ANNOTATE_ROWS, events.BINLOG_CHECKPOINT),
    }
    assert all(ACTIONS[kind] == HAND_BACK for kind in range(256) if kind not in events.NAMES)
