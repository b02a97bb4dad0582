"""The client of the admin service, and repairs through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from tests.support.clocks import ScriptedClock
from tests.support.fake_admin import FakeAdmin
from wormhole.admin import Admin, Change, Where
from wormhole.admin.admin_service import Answer
from wormhole.admin.repair import accept
from wormhole.coordination.current_user import current_user
from wormhole.model.errors import Fatal, StreamBroken, UsageError
from wormhole.wire.v1 import admin_pb2, push_pb2

# --- The client for programs: which request each method makes, and what it returns


ADMIN = Admin(Where("h:7"))


@pytest.mark.parametrize(
    ("ask", "field", "text"),
    [
        (lambda: ADMIN.pause("cache/db1"), "pause", ""),
        (lambda: ADMIN.resume("cache/db1"), "resume", ""),
        (lambda: ADMIN.skip("cache/db1", "db1:42:0"), "skip", 'update_id: "db1:42:0"'),
        (lambda: ADMIN.accept_loss("cache/db1"), "accept_loss", ""),
        (lambda: ADMIN.set_marker("cache/db1", "earliest"), "set_marker", 'place: "earliest"'),
        (lambda: ADMIN.forget("cache/db1"), "forget", ""),
        (lambda: ADMIN.retry_dead_letters("cache/db1", "users:7"), "retry_dead_letters", 'key: "users:7"'),
        (lambda: ADMIN.discard_dead_letters("cache/db1"), "discard_dead_letters", ""),
    ],
)
def test_a_change(ask: Callable[[], Change], field: str, text: str, admin: FakeAdmin) -> None:
    change = ask()
    (request,) = admin.requests
    assert request.WhichOneof("what") == field
    assert str(getattr(request, field)).strip() == text
    assert (request.flow, request.who, request.preview) == ("cache/db1", current_user(), False)
    assert (change.flow, change.publisher.log, change.made) == ("cache/db1", "db1", True)
    assert change.after.paused == current_user()
    assert change.notes == ("it was asked nicely",)


@pytest.mark.parametrize(
    ("ask", "field", "text"),
    [
        (lambda: ADMIN.backfill_start("cache/db1"), "backfill_start", ""),
        (
            lambda: ADMIN.backfill_start("cache/db1", ["shop.users"], "key > 1", 0),
            "backfill_start",
            'tables: "shop.users"\nwhere: "key > 1"\nrate: 0',
        ),
        (lambda: ADMIN.verify("cache/db1"), "backfill_start", "verify: VERIFY_COMPARE"),
        (
            lambda: ADMIN.verify("cache/db1", ["shop.users"], 9, repair=True),
            "backfill_start",
            'tables: "shop.users"\nrate: 9\nverify: VERIFY_REPAIR',
        ),
        (lambda: ADMIN.repair("cache/db1", 9), "backfill_start", "rate: 9\nlost: true"),
        (lambda: ADMIN.backfill_pause("cache/db1"), "backfill_pause", ""),
        (lambda: ADMIN.backfill_resume("cache/db1"), "backfill_resume", ""),
        (lambda: ADMIN.backfill_cancel("cache/db1"), "backfill_cancel", ""),
    ],
)
def test_a_change_of_a_backfill(ask: Callable[[], Change], field: str, text: str, admin: FakeAdmin) -> None:
    ask()
    (request,) = admin.requests
    assert (request.WhichOneof("what"), str(getattr(request, field)).strip()) == (field, text)


def test_a_rewind_is_a_time(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wormhole.admin.client.SYSTEM_CLOCK", SimpleNamespace(wall=lambda: 1_700_000_600.0))
    ADMIN.rewind("cache/db1", 600)
    assert admin.requests[0].set_marker.at_s == 1_700_000_000


def test_a_preview_changes_nothing(admin: FakeAdmin) -> None:
    assert not ADMIN.pause("cache/db1", preview=True).made
    assert admin.requests[0].preview


def test_the_state_now(admin: FakeAdmin) -> None:
    assert [one.log for one in ADMIN.publishers()] == ["db1"]
    names = [flow.flow for flow in ADMIN.flows()]
    assert names == sorted(names)
    assert "cache/db1" in names
    assert {flow.flow.partition("/")[0] for flow in ADMIN.flows("cache")} == {"cache"}
    assert ADMIN.flow("cache/db1").flow == "cache/db1"
    assert [letter.update_id for letter in ADMIN.dead_letters("cache/db1", 1)] == ["1/2/3:0"]


def test_a_publisher_that_does_not_answer_is_an_error_of_a_list(admin: FakeAdmin) -> None:
    """A list without its flows would look complete."""
    admin.answers.append(Answer("h:8", None, "the publisher at h:8 does not answer"))
    with pytest.raises(StreamBroken, match="h:8"):
        ADMIN.flows()


def test_a_coordinator_by_its_name() -> None:
    assert Admin("zk:2181/wormhole").where == Where(coordinator="zk:2181/wormhole")


async def test_in_an_event_loop_the_next_step_is_a_thread() -> None:
    with pytest.raises(UsageError, match="an event loop runs in this thread") as raised:
        Admin("127.0.0.1:1/wormhole").flows()
    assert raised.value.hint is not None
    assert "await asyncio.to_thread(admin.flows)" in raised.value.hint


# --- When the loss of a flow that asked for its rows is accepted


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


@pytest.mark.parametrize(
    ("answers", "refusals", "accepted"),
    [
        ([flow("releasing", 20), flow("live", 10), flow("live", 20), HELD], 0, 1),
        ([HELD], 3, 1),
        ([flow("opening", 10), flow("catching_up", 21)], 0, 0),
    ],
    ids=["it reads up to the loss once more", "the application is asked first", "the application goes on by itself"],
)
def test_a_loss_is_accepted_once_the_flow_is_at_it(
    answers: list[admin_pb2.FlowStatus], refusals: int, accepted: int
) -> None:
    asked = Asked(answers, refusals=refusals)
    asked.run()
    assert asked.accepted == accepted


def test_in_the_end_the_error_has_the_next_step() -> None:
    with pytest.raises(StreamBroken, match="the loss is not accepted yet: its application is being asked") as caught:
        Asked([HELD], refusals=1_000).run()
    assert caught.value.hint == "`wormholectl repair cache/db1` continues"
