"""The client: the present state of publishers and flows, changes of flows, and the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wormhole.admin import admin_service, configuration
from wormhole.admin.admin_service import Answer
from wormhole.admin.configuration import ConfigPlan
from wormhole.admin.repair import accept, check_repairable, is_begun
from wormhole.coordination.current_user import current_user
from wormhole.host.clock import SYSTEM_CLOCK
from wormhole.host.where import Where
from wormhole.model.errors import Fatal, StreamBroken, UsageError
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["Admin", "Change"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a flow: the flow ``before`` and ``after`` it, and ``notes`` for the operator.

    ``publisher``: the state of the flow's publisher before the change. ``made``: ``False`` for a preview.
    """

    publisher: admin_pb2.PublisherStatus
    flow: str
    before: admin_pb2.FlowStatus
    after: admin_pb2.FlowStatus
    notes: tuple[str, ...]
    made: bool


class Admin:
    """Asks publishers, and changes what they do. Every method blocks.

    ``where``: the coordinator (``zk1:2181/wormhole``, or the path of a TOML file), or a :class:`Where` for one
    publisher by its address or for certificates.

    Reading needs nothing but the way to the publisher. A change needs the state folder's token, so it runs on the
    publisher's host as its user, or a certificate that the publisher's ``admins`` lists (docs/security.md).

    Each method raises :class:`~wormhole.model.errors.UsageError` for a name or request that is wrong or not permitted,
    :class:`~wormhole.model.errors.Fatal` for a change that the flow's state does not allow,
    :class:`~wormhole.model.errors.StreamBroken` when a publisher does not answer (a change may then have been made or
    not), and other :class:`~wormhole.model.errors.WormholeError` when no publisher is found.
    """

    def __init__(self, where: Where | str) -> None:
        self.where = Where(coordinator=where) if isinstance(where, str) else where

    # -- the state now

    def publishers(self) -> list[admin_pb2.PublisherStatus]:
        """The state of every publisher, with its flows, except those of drained hosts. A publisher that does not answer
        is an error.
        """
        answers = admin_service.ask(self.where)
        if silent := [answer.problem for answer in answers if answer.silent]:
            raise StreamBroken(
                "; ".join(silent),
                hint="start that publisher, or name one with Where(publisher=...)",
                code="publisher-silent",
            )
        return [answer.status for answer in answers if answer.status is not None]

    def flows(self, application: str = "") -> list[admin_pb2.FlowStatus]:
        """The state of every flow, or of the application's flows, by name."""
        found = [flow for status in self.publishers() for flow in status.flows]
        mine = [flow for flow in found if not application or flow.flow.partition("/")[0] == application]
        return sorted(mine, key=lambda flow: flow.flow)

    def flow(self, flow: str) -> admin_pb2.FlowStatus:
        """The state of one flow, ``APP/SHARD``."""
        return self._find(flow)[1]

    def dead_letters(self, flow: str, limit: int = 100) -> list[admin_pb2.DeadLetter]:
        """At most ``limit`` parked updates of one flow, the oldest first."""
        owner = self._find(flow)[0]
        return list(admin_service.dead_letters(owner, flow, limit).letters)

    # -- changes of one flow; with ``preview`` nothing is changed

    def pause(self, flow: str, *, preview: bool = False) -> Change:
        """Stop delivering the flow until it is resumed, also over restarts. Its datamarker stays."""
        return self.change(flow, preview=preview, pause={})

    def resume(self, flow: str, *, preview: bool = False) -> Change:
        """Continue a paused flow, or one whose handler exhausted its retries, from its datamarker."""
        return self.change(flow, preview=preview, resume={})

    def skip(self, flow: str, update_id: str, *, preview: bool = False) -> Change:
        """Never deliver the update with this id, so that a flow whose handler cannot process it continues."""
        return self.change(flow, preview=preview, skip={"update_id": update_id})

    def accept_loss(self, flow: str, *, preview: bool = False) -> Change:
        """Continue a flow that is held at missing log after it. The missing range is not delivered."""
        return self.change(flow, preview=preview, accept_loss={})

    def set_marker(self, flow: str, place: str, *, preview: bool = False) -> Change:
        """Move the flow to ``earliest``, ``latest``, a place (``1/42/32768``) or the datastore's own form of one."""
        return self.change(flow, preview=preview, set_marker={"place": place})

    def rewind(self, flow: str, seconds: float, *, preview: bool = False) -> Change:
        """Deliver again what was committed in the last ``seconds``."""
        return self.change(flow, preview=preview, set_marker={"at_s": SYSTEM_CLOCK.wall() - seconds})

    def forget(self, flow: str, *, preview: bool = False) -> Change:
        """Delete the flow's record. The flow begins again where its application's ``start`` determines."""
        return self.change(flow, preview=preview, forget={})

    def retry_dead_letters(self, flow: str, key: str = "", *, anyone: bool = False, preview: bool = False) -> Change:
        """Deliver parked updates again, in order: of one key, or of all.

        Each is sent to the subscriber that parked it; with ``anyone``, to the subscriber that has the flow.
        """
        return self.change(flow, preview=preview, retry_dead_letters={"key": key, "anyone": anyone})

    def discard_dead_letters(self, flow: str, key: str = "", *, preview: bool = False) -> Change:
        """Delete parked updates, of one key or of all, without delivering them."""
        return self.change(flow, preview=preview, discard_dead_letters={"key": key})

    def backfill_start(
        self,
        flow: str,
        tables: Sequence[str] = (),
        where: str = "",
        rate: float | None = None,
        *,
        preview: bool = False,
    ) -> Change:
        """Send the rows that the tables hold already; empty: of all tables that the application receives.

        ``where``: a filter in addition to the application's; ``rate``: limit in bytes of rows per second, default: the
        configured one.
        """
        settings: dict[str, object] = {"tables": tuple(tables), "where": where}
        if rate is not None:
            settings["rate"] = rate
        return self.change(flow, preview=preview, backfill_start=settings)

    def verify(
        self,
        flow: str,
        tables: Sequence[str] = (),
        rate: float | None = None,
        *,
        repair: bool = False,
        preview: bool = False,
    ) -> Change:
        """Compare the rows of the tables with those that the application holds; empty: of all tables that it receives.

        ``repair``: rows that differ are delivered, and keys that only the application has are reported to it as gone.
        ``rate``: as for :meth:`backfill_start`. ``flow(name).backfill.verified`` has the results, while it runs and
        afterwards. :meth:`backfill_pause`, :meth:`backfill_resume` and :meth:`backfill_cancel` apply to it as well.
        """
        settings: dict[str, object] = {
            "tables": tuple(tables),
            "verify": push_pb2.VERIFY_REPAIR if repair else push_pb2.VERIFY_COMPARE,
        }
        if rate is not None:
            settings["rate"] = rate
        return self.change(flow, preview=preview, backfill_start=settings)

    def backfill_pause(self, flow: str, *, preview: bool = False) -> Change:
        """Send no rows until the backfill is resumed, also over restarts. Changes are still delivered."""
        return self.change(flow, preview=preview, backfill_pause={})

    def backfill_resume(self, flow: str, *, preview: bool = False) -> Change:
        """Continue a paused backfill where it was."""
        return self.change(flow, preview=preview, backfill_resume={})

    def backfill_cancel(self, flow: str, *, preview: bool = False) -> Change:
        """End a backfill early. The rows that were sent stay."""
        return self.change(flow, preview=preview, backfill_cancel={})

    def repair(self, flow: str, rate: float | None = None, *, preview: bool = False) -> Change:
        """Repair the data that the flow's application lacks after a data loss, and continue the flow if the loss holds
        it.

        If a relay knows which rows changed in the lost log, the application receives these. Otherwise an application
        that compares rows receives those that differ, as from :meth:`verify`, and any other all rows, as from
        :meth:`backfill_start`; a note has the reason. After an interruption at any point, the same call continues.
        ``flow(name).backfill`` shows the progress. The first note names the lost range, if the flow is held at it.
        Raises :class:`~wormhole.model.errors.Fatal` for a flow without a subscriber, and for a flow in a mass replay.
        """
        before = self.flow(flow)
        check_repairable(before)
        notes = self._lost(before)
        if is_begun(before):
            notes.append(f"its rows were asked for before, in generation {before.backfill.generation}")
        else:
            settings: dict[str, object] = {"lost": True}
            if before.verifies:
                settings["verify"] = push_pb2.VERIFY_REPAIR
            if rate is not None:
                settings["rate"] = rate
            started = self.change(flow, preview=preview, backfill_start=settings)
            notes.extend(started.notes)
            if preview:
                return replace(started, notes=tuple(notes))
        if before.loss_pending and not preview:
            accept(before, lambda: self.flow(flow), lambda: self.accept_loss(flow), SYSTEM_CLOCK)
        owner, after = self._find(flow)
        assert owner.status is not None
        return Change(owner.status, flow, before, after, tuple(notes), not preview)

    def _lost(self, flow: admin_pb2.FlowStatus) -> list[str]:
        """The lost range of the log of a flow that is held at a loss; empty for any other flow."""
        if not flow.loss_pending:
            return []
        try:
            return list(self.accept_loss(flow.flow, preview=True).notes[:1])
        except Fatal:  # its application is deciding at the moment
            return [flow.cause]

    def change(self, flow: str, *, preview: bool = False, **what: Mapping[str, object]) -> Change:
        """A change by its name in a ``ChangeRequest``, with its settings: ``skip={"update_id": "db1:42:0"}``."""
        changes: Any = what
        request = admin_pb2.ChangeRequest(flow=flow, who=current_user(), preview=preview, **changes)
        owner = self._owner(request)
        assert owner.status is not None
        reply = admin_service.change(owner, request)
        name = reply.after.flow or reply.before.flow
        return Change(owner.status, name, reply.before, reply.after, tuple(reply.notes), not preview)

    def _find(self, flow: str) -> tuple[Answer, admin_pb2.FlowStatus]:
        """The publisher that lists the flow, and the flow. Publishers are asked only for that flow."""
        try:
            return admin_service.owner_of(admin_service.ask(self.where, flow), flow)
        except UsageError:  # asked for all, the error suggests the nearest name
            return admin_service.owner_of(admin_service.ask(self.where), flow)

    def _owner(self, request: admin_pb2.ChangeRequest) -> Answer:
        """The publisher that lists the flow.

        A record to be forgotten may be of an application that is no longer configured. Then no publisher lists it, and
        the publisher of its shard's log has it.
        """
        try:
            return self._find(request.flow)[0]
        except UsageError:
            log = request.flow.partition("/")[2].partition(".")[0]
            answers = admin_service.ask(self.where)
            here = [answer for answer in answers if answer.status is not None and answer.status.log == log]
            if request.WhichOneof("what") != "forget" or len(here) != 1:
                raise
            return here[0]

    # -- the configuration that a coordinator stores

    def plan_configuration(self, file: Path | str, *, prune: bool = False) -> ConfigPlan:
        """The changes that applying the TOML file would make. Nothing is written.

        ``prune``: stored datasets and applications that the file lacks are removed. Raises
        :class:`~wormhole.model.errors.ConfigError` with all problems of the file, and for a change that would break the
        stored configuration.
        """
        return configuration.plan(Path(file), self.where.coordinator, prune=prune)

    def apply_configuration(self, plan: ConfigPlan) -> int:
        """Store all changes of the plan, or none. Returns the new version.

        Raises :class:`~wormhole.model.errors.WormholeError` when the stored configuration changed since the plan.
        """
        return configuration.apply(plan, self.where.coordinator)
