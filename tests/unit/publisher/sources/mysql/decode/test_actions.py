"""Which events the encoder takes by itself: what it does not know is never passed over."""

from __future__ import annotations

from publisher.sources.mysql.decode import events
from publisher.sources.mysql.decode.actions import ACTIONS, VERSION_2, Action, Status


def test_only_what_is_named_here_is_passed_over() -> None:
    ignored = {kind for kind in range(256) if ACTIONS[kind] == Action.IGNORE}
    assert ignored == {
        *(events.STOP, events.HEARTBEAT, events.HEARTBEAT_V2, events.IGNORABLE_EVENT, events.ROWS_QUERY),
        *(events.TRANSACTION_CONTEXT, events.VIEW_CHANGE, events.ANNOTATE_ROWS, events.BINLOG_CHECKPOINT),
    }
    assert all(ACTIONS[kind] == Action.HAND_BACK for kind in range(256) if kind not in events.NAMES)


def test_rows_say_their_operation_and_version() -> None:
    assert [ACTIONS[kind] - Action.ROWS for kind in (23, 24, 25, 30, 31, 32, 39)] == [1, 2, 3, 1, 2, 3, 2]
    assert [kind for kind in range(256) if VERSION_2[kind]] == [30, 31, 32, 39]


def test_no_two_reasons_to_stop_are_the_same() -> None:
    values = [value for name, value in vars(Status).items() if name.isupper()]
    assert len(set(values)) == len(values) == 9
