"""Several things wrong at one time, in random words: every observer shows one cause with its next step, the same one.

Which one is decided by what has to be done first: an operator's own decision, then one that only this flow waits for,
then what is wrong with the log, with coordination, and last with the subscriber.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.observers import FLOW, concerns, reported, running, shown, unreadable
from wormhole.wire.conditions import flow_condition, log_condition
from wormhole.wire.v1 import admin_pb2

WORDS = st.lists(
    st.sampled_from(["purged", "refused", "Übergabe", "''", "`a`.`b`", "db-7:3306", "100%", "名", "timeout"]),
    min_size=1,
)
REASONS = st.tuples(st.uuids(), st.lists(WORDS, max_size=12)).map(
    lambda made: " ".join([made[0].hex, *(word for words in made[1] for word in words)])
)


class Facts(NamedTuple):
    """What is wrong. ``log``: the cause and the step of a log that cannot be read; ``flow``: what is wrong with the
    flow itself, and why; ``alone``: it has no subscriber; ``others``: of how many other shards the same is true.
    """

    log: tuple[str, str] | None
    lost_coordinator: bool
    flow: tuple[str, str] | None
    alone: bool
    others: int = 0

    def reported(self) -> admin_pb2.PublisherStatus:
        fields: dict[str, Any] = unreadable(*self.log) if self.log else {}
        if self.lost_coordinator:
            fields["coordination"] = "lost"
        flow: dict[str, Any] = {"state": "unassigned", "subscriber": "", "cause": "none is there"} if self.alone else {}
        if self.flow is not None:
            kind, why = self.flow
            flow |= {"state": "held", "cause": why}
            more: dict[str, Any] = {"halted": {"halted_at": "1/2/3:0"}, "lost": {"loss_pending": True}}
            flow |= more.get(kind, {})
        others: list[dict[str, str]] = [{}] * self.others
        if self.flow is not None and self.flow[0] == "halted":  # each shard has its own update, and its own text
            others = [
                {"halted_at": f"4/5/{number}:0", "cause": f"row {number}: {self.flow[1]}"}
                for number in range(self.others)
            ]
        return reported(fields, flow, others)

    def decisive(self) -> tuple[str, str] | None:
        """The cause that is shown, and the next step."""
        kind, why = self.flow or ("", "")
        if kind == "halted":
            return f"its handler gave up at update 1/2/3:0: {why}", f"wormholectl flows resume {FLOW}"
        if kind == "lost":
            return why, f"wormholectl repair {FLOW}"
        if self.log:
            return self.log
        if kind:
            return why, f"wormholectl flows resume {FLOW}"
        if self.alone and self.lost_coordinator:
            return "ZooKeeper does not answer", "bring ZooKeeper back"
        return ("none is there", "wormholectl subscribers") if self.alone else None


facts = st.builds(
    Facts,
    st.none() | st.tuples(REASONS, REASONS),
    st.booleans(),
    st.none() | st.tuples(st.sampled_from(["halted", "lost", "held"]), REASONS),
    st.booleans(),
    st.integers(0, 2),
)


@given(facts)
@settings(deadline=None, max_examples=settings().max_examples // 4 or 1)
def test_every_observer_shows_one_cause(known: Facts) -> None:
    seen, decisive = known.reported(), known.decisive()
    texts = {one: shown(one, seen) for one in ("why-lag", "flows", "doctor", "page", "lag")}
    assert len(set(running(seen).values())) == 1
    if decisive is None:
        return
    cause, step = decisive
    for observer, text in texts.items():
        assert cause in text, observer
        if observer != "flows":  # one line for many flows: commands of one flow are left to `why-lag`
            assert step in text, observer
    why_lag = texts["why-lag"]
    if known.log and cause != known.log[0]:
        assert known.log[0] not in why_lag
    if known.flow and known.flow[1] not in cause:
        assert known.flow[1] not in why_lag
    if known.log:  # every observer of logs shows it once
        for observer in ("doctor", "publishers", "health", "up", "lag"):
            text = texts.get(observer) or shown(observer, seen)
            assert known.log[0] in text, observer
            assert known.log[1] in text, observer
        assert texts["doctor"].count(known.log[0]) == 1
    of_flow = flow_condition(seen, seen.flows[0]) != log_condition(seen)
    assert concerns(seen) == {"doctor": of_flow, "page": of_flow}, "one cause is one concern, of however many shards"


@pytest.mark.parametrize("kind", ["halted", "lost", "held"])
def test_what_is_wrong_with_a_flow_alone_leaves_its_publisher_ready(kind: str) -> None:
    seen = Facts(None, False, (kind, "why"), False).reported()
    assert [shown(observer, seen) for observer in ("health", "up")] == ["", ""]
