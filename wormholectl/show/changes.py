"""What one change of a flow alters: the fields before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from wormhole.wire.v1 import admin_pb2
from wormholectl.show.flows import flow_object
from wormholectl.show.lists import Status, publisher_name
from wormholectl.show.printer import print_json, print_table, print_text

__all__ = ["differences", "show_change"]

_CHANGEABLE: Final = (
    "state",
    "subscriber",
    "marker",
    "place",
    "paused",
    "skip",
    "dead_letters",
    "halted_at",
    "loss_pending",
    "cause",
)
"""What a change can alter. Lag and counters move by themselves."""


def show_change(status: Status, reply: admin_pb2.ChangeReply, as_json: bool, *, done: bool) -> None:
    """A change at the publisher that reported ``status``: what it would do, or with ``done`` what it did."""
    flow, publisher = reply.after.flow or reply.before.flow, publisher_name(status)
    if as_json:
        print_json(
            {
                "publisher": publisher,
                "flow": flow,
                "changed": done,
                "before": flow_object(status, reply.before),
                "after": flow_object(status, reply.after),
                "notes": list(reply.notes),
            }
        )
        return
    print_text(f"{flow} of {publisher} {'was changed' if done else 'would change'}:")
    rows = list(differences(status, reply.before, reply.after))
    print_table(("", "BEFORE", "AFTER"), rows, "  nothing that is reported")
    for note in reply.notes:
        print_text(f"note: {note}")


def differences(
    status: Status, before: admin_pb2.FlowStatus, after: admin_pb2.FlowStatus
) -> Iterable[tuple[str, str, str]]:
    """What a change altered, as field, before and after."""
    old, new = flow_object(status, before), flow_object(status, after)
    for field in _CHANGEABLE:
        if old[field] != new[field]:
            yield field.replace("_", " "), _text(old, field), _text(new, field)


def _text(flow: dict[str, Any], field: str) -> str:
    value, native = flow[field], flow.get(f"native_{field}")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if value in {None, ""}:
        return "-"
    return f"{value} ({native})" if native else str(value)
