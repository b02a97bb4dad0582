"""Publishers that answer the command line without a network."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from tests.support.publisher_status import status
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer
from wormhole.model.errors import WormholeError
from wormhole.wire.v1 import admin_pb2
from wormholectl.shared.options import Where


def _answers() -> list[Answer]:
    return [Answer("h:7", status("db1"))]


def _change_backfill(status: admin_pb2.BackfillStatus, what: str, request: admin_pb2.ChangeRequest) -> None:
    """What a change of a backfill leaves."""
    if what == "backfill_start":
        asked = request.backfill_start
        users = admin_pb2.BackfillTable(table="shop.users", state="waiting", rows_estimate=1_200_000)
        refused = admin_pb2.Problem(text="shop.log has no primary key", hint="add a primary key")
        log = admin_pb2.BackfillTable(table="shop.log", state="refused", refused=refused)
        chosen = [one for one in (log, users) if not asked.tables or one.table in asked.tables]
        generation = status.generation + 1
        status.Clear()
        status.MergeFrom(
            admin_pb2.BackfillStatus(generation=generation, state="waiting", who=request.who, verify=asked.verify)
        )
        status.progress.extend(chosen)
        status.tables.extend(asked.tables)
    else:
        status.state = {"backfill_pause": "paused", "backfill_resume": "running"}.get(what, "cancelled")


@dataclass
class FakeAdmin:
    """``answers``: what asking gives; ``requests``: what was asked to be changed; ``refusal``: what changes raise.

    A loss that is pending can be accepted. ``keeps``: what a change leaves is what is answered from then on.

    A change sets ``paused`` of the flow to who asked, and says so in a note; there are two dead letters, of cache/db1.
    A backfill that is started has the tables shop.users and shop.log, of which the second one is refused.
    """

    answers: list[Answer] = field(default_factory=_answers)
    requests: list[admin_pb2.ChangeRequest] = field(default_factory=list)
    asked: list[Where] = field(default_factory=list)
    refusal: WormholeError | None = None
    keeps: bool = False

    @property
    def status(self) -> admin_pb2.PublisherStatus:
        """The first publisher's status as it is answered; a test may change it."""
        assert self.answers[0].status is not None
        return self.answers[0].status

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
        """Take the place of the client."""
        for name in ("ask", "change", "dead_letters"):
            monkeypatch.setattr(admin_service, name, getattr(self, name))
        monkeypatch.setattr(admin_service, "ask_each", self.ask)
        return self

    def ask(self, where: Where, flow: str = "") -> list[Answer]:
        self.asked.append(where)
        return deepcopy(self.answers)  # as over a network: what was answered does not change later

    def change(self, answer: Answer, request: admin_pb2.ChangeRequest) -> admin_pb2.ChangeReply:
        kept = admin_pb2.ChangeRequest()
        kept.CopyFrom(request)
        self.requests.append(kept)
        if self.refusal is not None:
            raise self.refusal
        told = (flow for answer in self.answers if answer.status is not None for flow in answer.status.flows)
        before = next(flow for flow in told if flow.flow == request.flow)
        reply = admin_pb2.ChangeReply(before=before, after=before, notes=["it was asked nicely"])
        what = request.WhichOneof("what") or ""
        if what.startswith("backfill_"):
            _change_backfill(reply.after.backfill, what, request)
        elif what == "accept_loss" and before.loss_pending:
            reply.after.state, reply.after.loss_pending = "live", False
            reply.notes[:] = ["never delivered: log 5 to 9 is purged"]
        else:
            reply.after.paused = request.who
        if not request.preview and self.keeps:
            before.CopyFrom(reply.after)
        return reply

    def dead_letters(self, answer: Answer, flow: str, limit: int) -> admin_pb2.DeadLettersReply:
        letter = admin_pb2.DeadLetter(
            flow="cache/db1",
            update_id="1/2/3:0",
            table="users",
            key="users:7",
            op="insert",
            parked_at_s=1_700_000_000,
            error="ValueError: no such user",
            bytes=99,
        )
        later = admin_pb2.DeadLetter()
        later.CopyFrom(letter)
        later.update_id, later.error, later.retrying = "1/2/4:0", "an earlier update of its key is parked", True
        return admin_pb2.DeadLettersReply(letters=[letter, later][:limit], total=2, limit=1000)
