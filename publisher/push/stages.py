"""The stages of a flow at its publisher, and the events that lead from one to the next. Pure.

:class:`~publisher.push.flow.PublisherFlow` owns the stage of its flow and alone calls :func:`after`.
docs/architecture.md draws the stages; a test compares the drawing with :data:`TRANSITIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from wormhole.ports.marker_store import ReplayState

__all__ = ["TRANSITIONS", "Event", "ImpossibleError", "PublisherFlowState", "Stage", "after", "shown"]


class Stage(Enum):
    """The stages of a flow. "It" is the flow in these descriptions."""

    UNASSIGNED = "unassigned"
    """No subscriber has it."""
    HALTED = "halted"
    """A handler failed until its retries were exhausted. The subscriber's process does not get the flow again until the
    flow is resumed."""
    OPENING = "opening"
    """It was assigned, and its subscriber has not accepted it."""
    REDELIVERING = "redelivering"
    """It is accepted; parked updates are delivered again before any update of the log."""
    OPEN = "open"
    """The log's updates are delivered."""
    HELD = "held"
    """It is accepted, and its log cannot be sent any further, or its application's datamarker is from another
    history."""
    DECIDING = "deciding"
    """Log is missing, and the application was asked whether the flow continues."""
    DECLINED = "declined"
    """Log is missing, and the application decided to halt."""
    WITHDRAWN = "withdrawn"
    """Its subscriber was asked to release it, and had not accepted it before."""
    RELEASING = "releasing"
    """Its subscriber was asked to release it."""


class Event(Enum):
    """The events of a flow. "It" is the flow in these descriptions."""

    ASSIGN = "assign"
    """It is given to a subscriber, in a new epoch."""
    REDELIVER = "redeliver"
    """The subscriber accepted it, and parked updates are sent first."""
    BEGIN = "begin"
    """The log's updates are delivered from now on."""
    HOLD = "hold"
    """The log cannot be read any further, has a value that the application refuses, or has another history than the
    application's datamarker."""
    ASK = "ask"
    """The application is asked about missing log."""
    DECLINE = "decline"
    """The application halts at the missing log."""
    ACCEPT = "accept"
    """The application or an operator decided to continue after the missing log."""
    GO_BACK = "back"
    """The flow has to continue before its datamarker, which has to be set back first."""
    RECALL = "recall"
    """The subscriber is asked to release it."""
    RELEASE = "release"
    """The subscriber released or refused it, or its stream ended."""
    HALT = "halt"
    """A handler failed until its retries were exhausted."""
    RESUME = "resume"
    """A halted flow may be tried again."""


_ASSIGNED: Final = (
    Stage.OPENING,
    Stage.REDELIVERING,
    Stage.OPEN,
    Stage.HELD,
    Stage.DECIDING,
    Stage.DECLINED,
    Stage.WITHDRAWN,
    Stage.RELEASING,
)

TRANSITIONS: Final[Mapping[Event, Mapping[Stage, Stage]]] = {
    Event.ASSIGN: {Stage.UNASSIGNED: Stage.OPENING, Stage.HALTED: Stage.OPENING},
    Event.REDELIVER: {Stage.OPENING: Stage.REDELIVERING},
    Event.BEGIN: {Stage.OPENING: Stage.OPEN, Stage.REDELIVERING: Stage.OPEN},
    Event.HOLD: {Stage.OPENING: Stage.HELD, Stage.OPEN: Stage.HELD},
    Event.ASK: {Stage.OPEN: Stage.DECIDING, Stage.HELD: Stage.DECIDING},
    Event.DECLINE: {Stage.DECIDING: Stage.DECLINED},
    Event.ACCEPT: {Stage.DECIDING: Stage.OPEN, Stage.DECLINED: Stage.OPEN},
    Event.GO_BACK: {Stage.DECIDING: Stage.HELD, Stage.DECLINED: Stage.HELD},
    Event.RECALL: {
        **dict.fromkeys(_ASSIGNED, Stage.RELEASING),
        Stage.OPENING: Stage.WITHDRAWN,
        Stage.WITHDRAWN: Stage.WITHDRAWN,
    },
    Event.RELEASE: dict.fromkeys(_ASSIGNED, Stage.UNASSIGNED),
    Event.HALT: dict.fromkeys(_ASSIGNED, Stage.HALTED),
    Event.RESUME: {Stage.HALTED: Stage.UNASSIGNED},
}
"""For each event: the stages in which it can happen, each with the next stage."""


class ImpossibleError(RuntimeError):
    """An event that cannot happen in the flow's stage, which is a bug of this program."""


def after(stage: Stage, event: Event) -> Stage:
    """The stage after ``event``. Raises :class:`ImpossibleError`."""
    possible = TRANSITIONS[event]
    if stage not in possible:
        stages = ", ".join(one.value for one in possible)
        raise ImpossibleError(
            f"`{event.value}` cannot happen to a flow that is {stage.value}; only when it is {stages}"
        )
    return possible[stage]


class PublisherFlowState(Enum):
    """The states of a flow that operators see."""

    UNASSIGNED = "unassigned"
    PAUSED = "paused"
    OPENING = "opening"
    LIVE = "live"
    CATCHING_UP = "catching_up"
    HELD = "held"
    RELEASING = "releasing"
    REPLAYING = "replaying"
    NEEDS_REPLAY = "needs_replay"


def shown(
    stage: Stage, *, at_lead: bool, paused: bool = False, replay: ReplayState | None = None, blocked: bool = False
) -> PublisherFlowState:
    """The state that operators see. ``at_lead``: whether the flow travels with the lead caravan; ``replay``: the state
    of the mass replay that has it; ``blocked``: whether its record is lost, or another publisher has it at its
    subscriber."""
    match stage:
        case Stage.OPEN:
            return PublisherFlowState.LIVE if at_lead else PublisherFlowState.CATCHING_UP
        case Stage.RELEASING:
            return PublisherFlowState.RELEASING
        case Stage.HELD | Stage.DECIDING | Stage.DECLINED:
            return PublisherFlowState.HELD
        case Stage.OPENING | Stage.WITHDRAWN:
            return PublisherFlowState.HELD if blocked else PublisherFlowState.OPENING
        case Stage.UNASSIGNED | Stage.HALTED | Stage.REDELIVERING:
            if replay is not None:
                return (
                    PublisherFlowState.NEEDS_REPLAY
                    if replay is ReplayState.NEEDS_REPLAY
                    else PublisherFlowState.REPLAYING
                )
            if paused:
                return PublisherFlowState.PAUSED
            return PublisherFlowState.HELD if blocked or stage is Stage.HALTED else PublisherFlowState.UNASSIGNED
