"""One change of a flow: what it would do, the question, the change, the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wormhole.model.errors import UsageError
from wormholectl.confirm import confirm
from wormholectl.options import Where

if TYPE_CHECKING:
    from wormhole.wire.v1 import admin_pb2
    from wormholectl.admin_client import Answer

__all__ = ["change_flow"]


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
    from wormholectl.show.changes import show_change

    changes: Any = what
    request = admin_pb2.ChangeRequest(flow=flow, who=current_user(), **changes)
    owner = _owner(where, request)
    assert owner.status is not None
    if not yes:
        request.preview = True
        show_change(owner.status, admin_client.change(owner, request), as_json, done=False)
    confirm(question, yes)
    request.preview = False
    show_change(owner.status, admin_client.change(owner, request), as_json, done=True)


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
