"""One rate for all tasks, however they come and go."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from publisher.flows.replay_states import ReplayRun
from spark_replay.replay.rate import HEARD_S, RateShare, Shares

RATE = 1000.0


@dataclass
class Publisher:
    """What it knows of one flow, and the flow's task, if one runs."""

    flow: str
    run: ReplayRun = field(default_factory=lambda: ReplayRun("r", 0.0))
    task: RateShare | None = None
    asks_at: float = 0.0
    uses: float = 0.0

    def renew(self, shares: Shares, now: float) -> bool:
        granted = shares.grant(self.flow)
        assert granted is not None
        self.run.rate = granted
        return shares.received(self.flow, granted, self.run.heard(now), pushing=self.task is not None)

    def ask(self, now: float) -> None:
        assert self.task is not None
        self.run.answer(now)
        self.task.heard(self.run.granted, now, now)
        self.uses, self.asks_at = self.run.granted, now + HEARD_S


@pytest.mark.parametrize("seed", range(8))
def test_all_tasks_together_never_get_more_than_the_rate_and_in_the_end_each_its_part(seed: int) -> None:
    chance, shares, now = random.Random(seed), Shares(RATE, 0.0), 0.0
    flows = [Publisher(f"cache/{number}") for number in range(6)]
    sent = left = 0.0
    for step in range(3000):
        now += 0.02
        left = min(RATE * 0.25, left + RATE * 0.02)
        for one in flows:
            if one.task is None:
                if step < 2000 and chance.random() < 0.01:
                    one.task, one.asks_at = RateShare(limited=True, now=now), now
            elif step < 2000 and chance.random() < 0.003:
                one.task, one.uses = None, 0.0  # its executor died
            elif now >= one.asks_at:
                one.ask(now)
            if one.task is not None and one.task.wait_s(now) == 0.0:
                one.task.take(5)
                sent, left = sent + 5, left - 5
            if chance.random() < 0.03 and one.renew(shares, now):
                one.renew(shares, now)
        assert sum(one.uses for one in flows) <= RATE * (1 + 1e-9)
        assert left >= -1e-6 - 5 * len(flows), "more than the rate was sent"
    alive = [one for one in flows if one.task is not None]
    assert sent > 0
    assert {round(one.uses, 6) for one in alive} == {round(RATE / len(alive), 6)}


def test_a_task_that_comes_waits_until_the_others_know_of_their_smaller_shares() -> None:
    shares = Shares(RATE, 0.0)
    assert shares.received("a", 0.0, 0.0, pushing=True), "its share is due at once"
    assert shares.grant("a") == RATE
    assert not shares.received("a", RATE, RATE, pushing=True)
    shares.received("b", 0.0, 0.0, pushing=True)
    assert shares.grant("b") == 0.0, "the first one may use all of it still"
    assert shares.grant("a") == RATE / 2
    shares.received("a", RATE / 2, RATE, pushing=True)
    assert shares.grant("b") == 0.0, "it was not told yet"
    shares.received("a", RATE / 2, RATE / 2, pushing=True)
    assert shares.grant("b") == RATE / 2
    shares.received("b", RATE / 2, RATE / 2, pushing=True)
    shares.done("a")
    assert not shares.received("a", RATE / 2, RATE / 2, pushing=True), "an answer that comes late"
    assert shares.grant("b") == RATE
    assert shares.grant("c") == 0.0


def test_a_flow_that_waits_for_a_slot_takes_no_share() -> None:
    shares = Shares(RATE, 0.0)
    for flow in ("a", "b", "c"):
        shares.received(flow, 0.0, 0.0, pushing=flow == "a")
    assert [shares.grant(flow) for flow in ("a", "b", "c")] == [RATE, 0.0, 0.0]


def test_of_a_publisher_of_an_earlier_release_a_task_keeps_its_fixed_part() -> None:
    shares = Shares(RATE, RATE / 4)
    shares.received("old", 0.0, None, pushing=False)
    shares.received("new", 0.0, 0.0, pushing=True)
    assert shares.grant("new") == RATE * 3 / 4


def test_without_a_limit_nobody_is_told_and_nobody_waits() -> None:
    shares, share = Shares(0.0, 0.0), RateShare(limited=False, now=0.0)
    assert shares.grant("a") is None
    assert not shares.received("a", None, 0.0, pushing=True)
    share.take(1 << 30)
    assert share.wait_s(0.0) == 0.0


def test_a_task_looks_again_soon_and_a_share_lapses_that_is_not_told_again() -> None:
    share = RateShare(limited=True, now=0.0)
    share.take(100)
    assert share.wait_s(1.0) == 0.5, "it has none yet"
    share.heard(10.0, 1.0, 1.0)
    assert share.wait_s(1.0) == 0.5, "not the ten seconds that it takes at this rate"
    assert share.wait_s(100.0) == 0.5, "five seconds counted"
    share.heard(25.0, 100.0, 100.0)
    assert share.wait_s(101.9) == pytest.approx(0.1)
    assert share.wait_s(102.0) == 0.0
    share.heard(8.0, 104.0, 104.0)
    share.take(3)
    assert share.wait_s(104.0) == pytest.approx(1 / 8), "what was saved up at a higher share is gone"
