"""When the loss of a flow that asked for its rows is accepted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.clocks import ScriptedClock
from wormhole.admin.repair import accept
from wormhole.model.errors import Fatal, StreamBroken
from wormhole.wire.v1 import admin_pb2, push_pb2


def flow(state: str, offset: int, *, loss_pending: bool = False) -> admin_pb2.FlowStatus:
    place = push_pb2.Position(incarnation=1, file=2, offset=offset)
    return admin_pb2.FlowStatus(flow="cache/db1", state=state, place=place, loss_pending=loss_pending)


HELD = flow("held", 20, loss_pending=True)


class Asked:
    """Answers for one look after the other, the last one for ever; the loss is refused so often first."""

    def __init__(self, answers: Sequence[admin_pb2.FlowStatus], refusals: int = 0) -> None:
        self.answers, self.refusals, self.accepted = list(answers), refusals, 0

    def look(self) -> admin_pb2.FlowStatus:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def accept_loss(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Fatal("its application is being asked about the loss just now")
        self.accepted += 1

    def run(self) -> None:
        accept(HELD, self.look, self.accept_loss, ScriptedClock().clock, patience_s=10)


def test_a_flow_that_reads_up_to_the_loss_once_more_has_not_passed_it() -> None:
    asked = Asked([flow("releasing", 20), flow("live", 10), flow("live", 20), HELD])
    asked.run()
    assert asked.accepted == 1


def test_the_application_is_asked_first() -> None:
    asked = Asked([HELD], refusals=3)
    asked.run()
    assert asked.accepted == 1


def test_an_application_that_decides_to_go_on_needs_no_help() -> None:
    asked = Asked([flow("opening", 10), flow("catching_up", 21)])
    asked.run()
    assert asked.accepted == 0


def test_in_the_end_the_error_has_the_next_step() -> None:
    with pytest.raises(StreamBroken, match="the loss is not accepted yet: its application is being asked") as caught:
        Asked([HELD], refusals=1_000).run()
    assert caught.value.hint == "`wormholectl repair cache/db1` continues"
