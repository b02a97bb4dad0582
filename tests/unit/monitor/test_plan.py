"""What the plan promises whatever happens: one process per log, each end answered, nothing that runs rightly is
touched."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from monitor.plan import (
    Act,
    LiveRun,
    PlannedStep,
    Policy,
    PublisherSlot,
    StepsToTake,
    after_asked,
    after_end,
    after_no_start,
    after_start,
    phase_of,
    plan,
)
from monitor.state import LogKey, Phase

KEY = LogKey("shop", "main", "db1")
NEW = PublisherSlot()
POLICY = Policy(first_wait=1.0, longest_wait=8.0, crashes=3, within=60.0, stop_timeout=10.0)


def step(
    slot: PublisherSlot, digest: str | None, now: float = 0.0, *, may_start: bool = True
) -> tuple[Act | None, float]:
    found = plan({} if digest is None else {KEY: digest}, {KEY: slot}, now, POLICY, may_start=may_start)
    assert len(found.steps) <= 1
    return (found.steps[0].act if found.steps else None), found.next_at


def running(digest: str = "a", began: float = 0.0, *, ready: bool = True, slot: PublisherSlot = NEW) -> PublisherSlot:
    return replace(slot, run=LiveRun(7, digest, began, ready))


# --- single decisions


def test_what_is_wanted_is_started_and_what_runs_rightly_is_left() -> None:
    assert step(PublisherSlot(), "a") == (Act.START, math.inf)
    assert step(running("a"), "a") == (None, math.inf)
    assert step(PublisherSlot(), None) == (None, math.inf)


def test_another_configuration_is_a_stop_and_then_a_start() -> None:
    slot = running("a")
    assert step(slot, "b")[0] is Act.STOP
    stopping = replace(slot, run=LiveRun(7, "a", 0.0, True, stop_asked=5.0))
    assert step(stopping, "b", 5.0) == (None, 15.0)
    # Also when the old one is wanted again meanwhile: it was told to go.
    assert step(stopping, "a", 5.0) == (None, 15.0)
    assert step(after_end(stopping, 0, 6.0, POLICY), "b", 6.0)[0] is Act.START


def test_what_is_not_wanted_is_stopped_and_killed_when_it_does_not_end() -> None:
    assert plan({}, {KEY: running()}, 0.0, POLICY).steps == (
        PlannedStep(Act.STOP, KEY, "no longer configured for this host"),
    )
    stopping = PublisherSlot(LiveRun(7, "a", 0.0, True, stop_asked=5.0))
    assert step(stopping, None, 14.9) == (None, 15.0)
    assert step(stopping, None, 15.0)[0] is Act.KILL
    killed = PublisherSlot(LiveRun(7, "a", 0.0, True, stop_asked=5.0, killed=True))
    assert step(killed, None, 99.0) == (None, math.inf)


def test_nothing_is_started_while_another_monitor_may_act_here_but_what_runs_is_kept_in_order() -> None:
    assert step(PublisherSlot(), "a", may_start=False) == (None, math.inf)
    assert step(running("a"), None, may_start=False)[0] is Act.STOP


def test_the_waits_double_up_to_the_longest() -> None:
    slot, now, waits = PublisherSlot(), 0.0, []
    for _ in range(6):
        slot = after_end(running(slot=slot, began=now), 3, now, POLICY)
        waits.append(slot.start_at - now)
        assert step(slot, "a", slot.start_at - 0.1) == (None, slot.start_at)
        assert step(slot, "a", slot.start_at)[0] is Act.START
        now = slot.start_at
    assert waits == [1, 2, 4, 8, 8, 8]


def test_a_run_that_lasted_forgets_the_crashes_before() -> None:
    slot = after_end(running(began=0.0), 1, 1.0, POLICY)
    slot = after_end(running(slot=slot, began=2.0), 1, 2.0 + POLICY.within, POLICY)
    assert slot.failures == 1
    assert len(slot.crashes) == 1


def test_a_crash_loop_is_given_up_until_the_configuration_changes() -> None:
    slot = PublisherSlot()
    for number in range(POLICY.crashes):
        assert not slot.given_up, number
        slot = after_end(running(slot=slot, began=float(number)), -9, float(number), POLICY)
    assert slot.given_up
    assert step(slot, "a", 1e9) == (None, math.inf)
    assert step(slot, "b", 3.0)[0] is Act.START, "another configuration is another try, at once"
    again = after_start(slot, 8, "b", 3.0)
    assert after_end(again, 1, 4.0, POLICY).failures == 1, "what was before is not counted against it"


@pytest.mark.parametrize(("ready", "gives_up"), [(False, True), (True, False)])
def test_a_wrong_request_is_given_up_at_once_unless_it_served_before(ready: bool, gives_up: bool) -> None:
    assert after_end(running(ready=ready), 2, 1.0, POLICY).given_up is gives_up


@pytest.mark.parametrize("status", [1, 2, 3, -9])
def test_who_asks_to_try_again_is_heard_by_what_is_just_failing(status: int) -> None:
    # It may fail at what was mended since: what it was refused for is no reason to give up.
    before = PublisherSlot(None, "a", 2, (1.0, 2.0), 9.0)
    slot = after_asked(running(began=3.0, ready=False, slot=before))
    ended = after_end(slot, status, 4.0, POLICY)
    assert not ended.given_up
    assert step(ended, "a", 4.0)[0] is Act.START
    # What waits or was given up starts at once; what serves is left alone, and its later end is an end like any other.
    assert step(after_asked(replace(before, given_up=True)), "a", 4.0)[0] is Act.START
    assert after_asked(running()) == running()


def test_what_is_away_is_waited_for_for_ever() -> None:
    slot, now = PublisherSlot(), 0.0
    for _ in range(100):
        slot = after_end(running(slot=slot, began=now), 3, now + 0.1, POLICY)
        assert not slot.given_up
        now = slot.start_at
    slot = PublisherSlot()
    for _ in range(100):
        slot = after_no_start(slot, "a", now, POLICY)
        assert not slot.given_up
        assert slot.start_at <= now + POLICY.longest_wait


@pytest.mark.parametrize(
    ("slot", "digest", "drained", "phase"),
    [
        (PublisherSlot(), None, False, None),
        (PublisherSlot(), "a", False, Phase.STARTING),
        (PublisherSlot(), "a", True, Phase.DRAINED),
        (PublisherSlot(LiveRun(1, "a", 0.0)), "a", False, Phase.STARTING),
        (PublisherSlot(LiveRun(1, "a", 0.0, True)), "a", False, Phase.RUNNING),
        (PublisherSlot(LiveRun(1, "a", 0.0, True, 1.0)), "a", True, Phase.STOPPING),
        (PublisherSlot(LiveRun(1, "a", 0.0, True)), None, False, Phase.RUNNING),
        (PublisherSlot(None, "a", 1, (0.0,), 5.0), "a", False, Phase.BACKING_OFF),
        (PublisherSlot(None, "a", 1, (0.0,), 5.0, True), "a", False, Phase.GIVEN_UP),
        (PublisherSlot(None, "a", 1, (0.0,), 5.0, True), "b", False, Phase.STARTING),
    ],
)
def test_what_is_reported_of_a_slot(
    slot: PublisherSlot, digest: str | None, drained: bool, phase: Phase | None
) -> None:
    assert phase_of(slot, digest, drained=drained) is phase


@given(st.lists(st.tuples(st.sampled_from([0, 1, -9, None]), st.floats(0, 200)), max_size=30))
def test_in_any_time_as_long_as_the_window_so_many_starts_at_most(ends: list[tuple[int | None, float]]) -> None:
    slot, now, starts = PublisherSlot(), 0.0, []
    for status, lasts in ends:
        now = max(now, slot.start_at)
        if step(slot, "a", now)[0] is not Act.START:
            break
        starts.append(now)
        slot = after_start(slot, 1, "a", now)
        now += lasts
        slot = after_end(slot, status, now, POLICY)
    for first in starts:
        assert sum(first <= at < first + POLICY.within for at in starts) <= POLICY.crashes


# --- whatever happens


class Host(RuleBasedStateMachine):
    """A host in which the plan is carried out, and everything else happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wanted: dict[LogKey, str] = {}
        self.slots: dict[LogKey, PublisherSlot] = {}
        self.alive: dict[LogKey, list[LiveRun]] = {}
        self.touched_rightly = True

    keys = st.sampled_from([LogKey("shop", "main", name) for name in "ab"])

    def carry_out(self) -> StepsToTake[LogKey]:
        found = plan(self.wanted, self.slots, self.now, POLICY)
        for one in found.steps:
            slot = self.slots.get(one.key, PublisherSlot())
            run = slot.run
            if one.act is Act.START:
                assert not self.alive.get(one.key), "a second process for one log"
                slot = after_start(slot, 1, self.wanted[one.key], self.now)
                assert slot.run is not None
                self.alive[one.key] = [slot.run]
            else:
                assert run is not None
                assert run.digest != self.wanted.get(one.key) or run.stop_asked is not None
                if one.act is Act.STOP:
                    assert run.stop_asked is None, "asked twice"
                    slot = replace(slot, run=replace(run, stop_asked=self.now))
                else:
                    assert run.stop_asked is not None
                    assert self.now - run.stop_asked >= POLICY.stop_timeout
                    assert not run.killed
                    slot = replace(slot, run=replace(run, killed=True))
            self.slots[one.key] = slot
        return found

    @rule(key=keys, digest=st.sampled_from("xy"))
    def want(self, key: LogKey, digest: str) -> None:
        self.wanted[key] = digest
        self.carry_out()

    @rule(key=keys)
    def no_longer(self, key: LogKey) -> None:
        self.wanted.pop(key, None)
        self.carry_out()

    @precondition(lambda self: any(self.alive.values()))
    @rule(data=st.data(), status=st.sampled_from([0, 1, 2, 3, -9, None]))
    def ends(self, data: st.DataObject, status: int | None) -> None:
        key = data.draw(st.sampled_from(sorted(key for key, runs in self.alive.items() if runs)))
        self.alive[key] = []
        self.slots[key] = after_end(self.slots[key], status, self.now, POLICY)
        self.carry_out()

    @rule(key=keys)
    def is_ready(self, key: LogKey) -> None:
        slot = self.slots.get(key, PublisherSlot())
        if slot.run is not None:
            self.slots[key] = replace(slot, run=replace(slot.run, ready=True))

    @rule(seconds=st.floats(0.1, 100))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out()

    @invariant()
    def everything_is_in_order(self) -> None:
        """When nothing more is to be done, what runs is what is wanted, but for what ends and what waits for a
        reason."""
        found = self.carry_out()
        assert not found.steps or not plan(self.wanted, self.slots, self.now, POLICY).steps
        for key, digest in self.wanted.items():
            slot = self.slots[key]
            run = slot.run
            if run is None:
                assert slot.failed == digest
                assert slot.given_up or found.next_at <= slot.start_at
            else:
                assert run.digest == digest or run.stop_asked is not None
        for key, slot in self.slots.items():
            if key not in self.wanted and slot.run is not None:
                assert slot.run.stop_asked is not None
            if slot.run is not None and slot.run.stop_asked is not None and not slot.run.killed:
                assert found.next_at <= slot.run.stop_asked + POLICY.stop_timeout, "nobody looks at its end again"


TestWhateverHappens = Host.TestCase
