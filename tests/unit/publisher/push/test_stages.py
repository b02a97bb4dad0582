"""Every event in every stage of a flow, and what an operator sees of each."""

from __future__ import annotations

from itertools import product

import pytest

from publisher.push.stages import TRANSITIONS, Event, ImpossibleError, PublisherFlowState, Stage, after, shown
from wormhole.ports.marker_store import ReplayState

# A column for each event of `_EVENTS`, in its order; `-`: it cannot happen.
_EVENTS = "assign redeliver begin hold ask decline accept back recall release halt resume"
_GRID = """
unassigned    opening -            -    -    -        -        -    -    -         -          -      -
halted        opening -            -    -    -        -        -    -    -         -          -      unassigned
opening       -       redelivering open held -        -        -    -    withdrawn unassigned halted -
redelivering  -       -            open -    -        -        -    -    releasing unassigned halted -
open          -       -            -    held deciding -        -    -    releasing unassigned halted -
held          -       -            -    -    deciding -        -    -    releasing unassigned halted -
deciding      -       -            -    -    -        declined open held releasing unassigned halted -
declined      -       -            -    -    -        -        open held releasing unassigned halted -
withdrawn     -       -            -    -    -        -        -    -    withdrawn unassigned halted -
releasing     -       -            -    -    -        -        -    -    releasing unassigned halted -
"""
_AFTER = {
    (Stage(row[0]), Event(event)): cell
    for row in map(str.split, _GRID.strip().splitlines())
    for event, cell in zip(_EVENTS.split(), row[1:], strict=True)
}


def test_the_grid_has_every_event_of_every_stage() -> None:
    assert set(_AFTER) == set(product(Stage, Event))


@pytest.mark.parametrize("stage", Stage)
def test_each_event_leads_to_its_stage_or_is_refused(stage: Stage) -> None:
    for event in Event:
        check_event(stage, event)


def check_event(stage: Stage, event: Event) -> None:
    if (wanted := _AFTER[stage, event]) == "-":
        with pytest.raises(ImpossibleError, match=f"`{event.value}` cannot happen to a flow that is {stage.value}"):
            after(stage, event)
    else:
        assert after(stage, event) is Stage(wanted), event


def test_a_flow_can_come_from_every_stage_to_every_other() -> None:
    """No stage is a dead end, and none is never reached."""
    step = {stage: {possible[stage] for possible in TRANSITIONS.values() if stage in possible} for stage in Stage}
    for begin in Stage:
        reached = {begin}
        while (more := {last for stage in reached for last in step[stage]} - reached) != set():
            reached |= more
        assert reached == set(Stage)


def test_a_subscriber_that_has_it_can_always_lose_it() -> None:
    nobody = {Stage.UNASSIGNED, Stage.HALTED}
    for event in (Event.RELEASE, Event.HALT, Event.RECALL):
        assert set(TRANSITIONS[event]) == set(Stage) - nobody
    assert set(TRANSITIONS[Event.ASSIGN]) == nobody


_NOBODY = (Stage.UNASSIGNED, Stage.HALTED, Stage.REDELIVERING)


@pytest.mark.parametrize("stage", Stage)
def test_what_an_operator_sees(stage: Stage) -> None:
    for at_lead, paused, replay, blocked in product((False, True), (False, True), (None, *ReplayState), (False, True)):
        found = shown(stage, at_lead=at_lead, paused=paused, replay=replay, blocked=blocked)
        wanted = seen_by_operators(stage, at_lead=at_lead, paused=paused, replay=replay, blocked=blocked)
        assert found is PublisherFlowState(wanted), (at_lead, paused, replay, blocked)


def seen_by_operators(stage: Stage, *, at_lead: bool, paused: bool, replay: ReplayState | None, blocked: bool) -> str:
    if stage in _NOBODY and replay is not None:
        return "needs_replay" if replay is ReplayState.NEEDS_REPLAY else "replaying"
    if stage in _NOBODY and paused:
        return "paused"
    if stage in (Stage.HELD, Stage.DECIDING, Stage.DECLINED):
        return "held"
    if stage is Stage.RELEASING:
        return "releasing"
    if stage is Stage.OPEN:
        return "live" if at_lead else "catching_up"
    if blocked or stage is Stage.HALTED:
        return "held"
    return "opening" if stage in (Stage.OPENING, Stage.WITHDRAWN) else "unassigned"
