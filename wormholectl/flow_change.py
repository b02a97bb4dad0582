"""One change of a flow: what it would do, the question, the change, the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from wormhole.model.errors import UsageError
from wormholectl.confirm import confirm
from wormholectl.options import Where
from wormholectl.show.printer import print_json, print_table, print_text

if TYPE_CHECKING:
    from wormhole.wire.v1 import admin_pb2
    from wormholectl.admin_client import Answer

__all__ = ["change_flow", "differences"]

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


def change_flow(where: Where, flow: str, question: str, yes: bool, as_json: bool, **what: Mapping[str, object]) -> None:
    """Preview a change at the publisher that has ``flow``, show it, ask, make the change, show the result.

    ``what``: the change's name in a ``ChangeRequest``, and its settings: ``skip={"update_id": "db1:42:0"}``.

    With ``yes`` the change is made at once. For programs the first object is the preview (``changed`` false), the last
    one the result. Raises :class:`~wormhole.model.errors.WormholeError`; until the question is answered nothing is
    changed.
    """
    from wormhole.coordination.current_user import current_user
    from wormhole.wire.v1 import admin_pb2
    from wormholectl import admin_client
    from wormholectl.show.lists import publisher_name

    changes: Any = what
    request = admin_pb2.ChangeRequest(flow=flow, who=current_user(), **changes)
    owner = _owner(where, request)
    assert owner.status is not None
    name = publisher_name(owner.status)
    if not yes:
        request.preview = True
        _show(admin_client.change(owner, request), name, as_json)
    confirm(question, yes)
    request.preview = False
    _show(admin_client.change(owner, request), name, as_json, done=True)


def _owner(where: Where, request: admin_pb2.ChangeRequest) -> Answer:
    """The publisher that lists the flow; it is asked for that flow alone.

    A record to be forgotten may be of an application that is no longer configured. Then no publisher lists it, and the
    publisher of its shard's log has it.
    """
    from wormholectl import admin_client

    try:
        return admin_client.owner_of(admin_client.ask(where, request.flow), request.flow)[0]
    except UsageError:
        answers = admin_client.ask(where)  # all names, to suggest the nearest one
        log = request.flow.partition("/")[2].partition(".")[0]
        here = [answer for answer in answers if answer.status is not None and answer.status.log == log]
        if request.WhichOneof("what") != "forget" or len(here) != 1:
            return admin_client.owner_of(answers, request.flow)[0]
        return here[0]


def _show(reply: admin_pb2.ChangeReply, publisher: str, as_json: bool, *, done: bool = False) -> None:
    from wormholectl.show.flows import flow_object

    flow = reply.after.flow or reply.before.flow
    if as_json:
        print_json(
            {
                "publisher": publisher,
                "flow": flow,
                "changed": done,
                "before": flow_object(reply.before),
                "after": flow_object(reply.after),
                "notes": list(reply.notes),
            }
        )
        return
    print_text(f"{flow} of {publisher} {'was changed' if done else 'would change'}:")
    print_table(("", "BEFORE", "AFTER"), list(differences(reply.before, reply.after)), "  nothing that is reported")
    for note in reply.notes:
        print_text(f"note: {note}")


def differences(before: admin_pb2.FlowStatus, after: admin_pb2.FlowStatus) -> Iterable[tuple[str, str, str]]:
    """What a change altered, as field, before and after."""
    from wormholectl.show.flows import flow_object

    old, new = flow_object(before), flow_object(after)
    for field in _CHANGEABLE:
        if old[field] != new[field]:
            yield field.replace("_", " "), _text(old[field]), _text(new[field])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value) if value not in (None, "") else "-"
