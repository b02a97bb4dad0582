"""Shows the effect of one change of a flow: the changed fields before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from wormhole.admin import Change
from wormhole.admin.admin_service import publisher_name
from wormhole.wire.v1 import admin_pb2
from wormholectl.show.flows import flow_object
from wormholectl.show.lists import short_cause
from wormholectl.show.places import Status
from wormholectl.show.printer import print_json, print_notes, print_table, print_text

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
"""The fields that a change can alter. Lag and counters are excluded, because they change by themselves."""


def show_change(change: Change, as_json: bool) -> None:
    """Print the effect of a change, or of its preview."""
    status, publisher = change.publisher, publisher_name(change.publisher)
    if as_json:
        print_json(
            {
                "publisher": publisher,
                "flow": change.flow,
                "changed": change.made,
                "before": flow_object(status, change.before),
                "after": flow_object(status, change.after),
                "notes": list(change.notes),
            }
        )
        return
    print_text(f"{change.flow} of {publisher} {'was changed' if change.made else 'would change'}:")
    causes: dict[str, str] = {}
    rows = [
        (field, *(short_cause(text, causes) if field == "cause" else text for text in texts))
        for field, *texts in differences(status, change.before, change.after)
    ]
    print_table(("", "BEFORE", "AFTER"), rows, "  nothing that is reported")
    for cause, sign in causes.items():
        print_text(f"{sign} {cause}")
    print_notes(change.notes)


def differences(
    status: Status, before: admin_pb2.FlowStatus, after: admin_pb2.FlowStatus
) -> Iterable[tuple[str, str, str]]:
    """The changed fields: name, value before, value after."""
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
