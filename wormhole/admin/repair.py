"""Repair of a flow whose log lost a range: its rows are requested durably, and then the loss is accepted.

In this order a crash between the two steps leaves a flow that is still held at its loss and has its rows requested; the
same repair continues there. In the other order it would leave a flow that continues without the missing data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wormhole.host.clock import Clock
from wormhole.model.errors import Fatal, StreamBroken
from wormhole.wire.backfills import has_ended
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["accept", "check_repairable", "is_begun"]

_EVERY_S: Final = 0.25
_PATIENCE_S: Final = 120.0
_GOES_ON: Final = frozenset({"live", "catching_up"})


def check_repairable(flow: admin_pb2.FlowStatus) -> None:
    """Raise :class:`~wormhole.model.errors.Fatal` if another action has to be taken first."""
    name, replay = flow.flow, flow.replay
    if flow.HasField("replay"):
        step = f"wait until it is through, or `wormholectl replay --cancel {replay.replay}`"
        if replay.state == "needs_replay":
            step = (
                f"`wormholectl replay --resume {replay.replay}`; or `wormholectl flows accept-loss {name}`, then this"
            )
        raise Fatal(f"{name}: replay {replay.replay} has the flow", hint=step, code="flow-replaying")
    if flow.subscriber:
        return
    if flow.loss_pending:
        step = f"`wormholectl flows accept-loss {name}`, which shows where it begins; then this"
        raise Fatal(f"{name} has no datamarker: {flow.problem.text}", hint=step, code="marker-missing")
    application = name.partition("/")[0]
    raise Fatal(
        f"{name} has no subscriber, which alone can say whether its rows can be compared",
        hint=f"start a subscriber of {application}, then repeat this",
        code="no-subscriber",
    )


def is_begun(flow: admin_pb2.FlowStatus) -> bool:
    """Whether the flow is held at a loss and every row that its application may lack was requested already."""
    status = flow.backfill
    whole = not status.tables and not status.where and status.verify != push_pb2.VERIFY_COMPARE
    return flow.loss_pending and bool(status.generation) and not has_ended(status) and not status.paused and whole


def accept(
    held: admin_pb2.FlowStatus,
    look: Callable[[], admin_pb2.FlowStatus],
    accept_loss: Callable[[], object],
    clock: Clock,
    patience_s: float = _PATIENCE_S,
) -> None:
    """Accept the loss as soon as the flow, assigned again, is held at it again. Returns when the flow continues.

    ``held``: its status when it was held first; ``look``: returns its status now; ``accept_loss``: accepts, and raises
    :class:`~wormhole.model.errors.Fatal` while the application has not decided yet. Raises
    :class:`~wormhole.model.errors.StreamBroken` after ``patience_s``.
    """
    until = clock.monotonic() + patience_s
    while True:
        flow = look()
        if flow.loss_pending:
            try:
                accept_loss()
            except Fatal as error:
                cause = str(error)
            else:
                return
        elif flow.state in _GOES_ON and _order(flow.place) > _order(held.place):
            return  # the application accepted by itself; up to that place it reads the same log as before
        else:
            cause = flow.cause
        if clock.monotonic() >= until:
            raise StreamBroken(
                f"{flow.flow}: its rows were asked for, but the loss is not accepted yet: {cause or flow.state}",
                hint=f"`wormholectl repair {flow.flow}` continues",
            )
        clock.pause(_EVERY_S)


def _order(place: push_pb2.Position) -> tuple[int, int, int]:
    return place.incarnation, place.file, place.offset
