"""What operators change about flows: each change is looked at first, shown, and then made.

A change is durable when it is answered. If the process dies in the middle of one, it was made or not, never half: what
a flow rests on is one record of the marker store, and what is given to subscribers follows from it at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import grpc

from publisher.flows.backfill_rules import begun_anew
from publisher.flows.marker_target import by_start, by_text, by_time, distance, located
from publisher.flows.refused_error import RefusedError
from publisher.flows.update_ids import check_update_id, is_behind
from publisher.operate.backfill_changes import BackfillChanges
from publisher.operate.operators import check_serving, flow_key, no_flow, not_now, person, record
from publisher.operate.status import flow_status
from publisher.operate.step import Step
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, flow_name
from wormhole.model.problem import NO_PROBLEM
from wormhole.ports.marker_store import MOST_SKIPPED, FlowKey, ReplayState, start_key
from wormhole.wire.markers import marker_to_message, position_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["Control"]

_log = logging.getLogger(__name__)

_LETTERS: Final = 100


class Control:
    """Makes changes, one at a time."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._assigner = publisher.assigner
        self._changing = asyncio.Lock()
        self._backfills = BackfillChanges(publisher)

    async def change(self, request: admin_pb2.ChangeRequest, certificate: str = "") -> admin_pb2.ChangeReply:
        """Make the change, or with ``request.preview`` report what it would do. ``certificate``: whose permitted it.

        Raises :class:`~publisher.flows.refused_error.RefusedError` and what the store and the source raise; nothing is
        changed then.
        """
        check_serving(self._publisher)
        who = person(request.who, certificate)
        # Where a flow is about to begin must not be released meanwhile. A pause does not wait for a source that is
        # away.
        key, what = flow_key(request.flow), request.WhichOneof("what")
        located = what in ("set_marker", "forget")
        ends_replay = located or what == "accept_loss"
        async with (
            self._changing,
            self._publisher.applications.registering if located else nullcontext(),
            self._publisher.replays.lock(key) if ends_replay else nullcontext(),
        ):
            flow = self._assigner.flows.get(key)
            step, before = await (self._unserved(request, key) if flow is None else self._look(request, flow, who))
            if request.preview:
                return admin_pb2.ChangeReply(before=before, after=step.after, notes=step.notes)
            try:
                await step.do()
            except KeyError:
                raise no_flow(self._publisher, key) from None
            reply = admin_pb2.ChangeReply(before=before, after=step.after, notes=step.notes)
            if flow is not None:
                reply.after.CopyFrom(self._status(flow))
        _log.warning("%s: %s by %s: %s -> %s", request.flow, step.what, who, step.old or "-", step.new or "-")
        reply.notes.extend(await record(self._publisher, who, step.what, request.flow, step.old, step.new))
        return reply

    async def dead_letters(self, request: admin_pb2.DeadLettersRequest) -> admin_pb2.DeadLettersReply:
        """What is parked."""
        office = self._publisher.dead_letters
        key = flow_key(request.flow) if request.flow else None
        if key is not None and key not in self._assigner.flows:
            raise no_flow(self._publisher, key)
        letters, total = await office.letters(key, request.limit or _LETTERS)
        return admin_pb2.DeadLettersReply(letters=letters, total=total, limit=office.limit)

    async def _look(
        self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str
    ) -> tuple[Step, admin_pb2.FlowStatus]:
        before = self._status(flow)
        match request.WhichOneof("what"):
            case "pause":
                step = self._pause(flow, who)
            case "resume":
                step = self._resume(flow)
            case "set_marker":
                step = await self._set_marker(flow, request.set_marker)
            case "skip":
                step = self._skip(flow, request.skip.update_id)
            case "accept_loss":
                step = self._accept_loss(flow)
            case "retry_dead_letters":
                key = request.retry_dead_letters.key
                again = partial(self._publisher.dead_letters.retry, anyone=request.retry_dead_letters.anyone)
                step = await self._letters("retry-dead-letters", flow, again, key)
            case "discard_dead_letters":
                key = request.discard_dead_letters.key
                step = await self._letters("discard-dead-letters", flow, self._publisher.dead_letters.discard, key)
            case "forget":
                step = await self._begin_anew(flow)
            case "backfill_start" | "backfill_pause" | "backfill_resume" | "backfill_cancel":
                step = await self._backfills.step(request, flow, who)
            case _:
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    "the request names no change that this release knows",
                    code="release-too-old",
                )
        return step, before

    # -- the verbs

    def _pause(self, flow: PublisherFlow, who: str) -> Step:
        if flow.control.paused:
            raise not_now(flow, f"it is paused already, by {flow.control.paused}")
        paused = f"{who} at {datetime.fromtimestamp(self._publisher.clock.wall(), UTC):%Y-%m-%d %H:%M:%S} UTC"
        after = self._status(flow)
        after.paused, after.state, after.cause = paused, "paused", f"paused by {paused}"
        after.subscriber = ""

        async def pause() -> None:
            await self._publisher.control(flow, lambda control: replace(control, paused=paused))
            self._ask_back(flow, f"paused by {paused}")
            self._publisher.replays.fence(flow)

        step = Step("pause", after, pause, self._state(flow), "paused")
        headroom = self._publisher.log_watch.headroom(flow.delivery.marker).seconds
        if headroom is not None:
            step.notes.append(f"the log holds its datamarker for about {headroom / 3600:.1f} h more as it grows now")
        if flow.control.replay is not None:
            step.notes.append(f"replay {flow.control.replay.id} waits until it is resumed")
        if flow in (stream.flows if (stream := self._assigner.stream_of(flow)) is not None else ()):
            step.notes.append(f"{flow.holding.subscriber} finishes what it has begun first")
        return step

    def _resume(self, flow: PublisherFlow) -> Step:
        paused = flow.control.paused
        if not paused and not flow.halted:
            lacks_log = flow.loss.open is not None or flow.lost_record or _needs_replay(flow)
            hint = "`accept-loss` is for a flow that is held at missing log" if lacks_log else None
            raise not_now(flow, "it is neither paused nor halted", hint)
        after = self._status(flow)
        after.paused, after.halted_at, after.state, after.cause = "", "", "unassigned", "goes on soon"

        async def resume() -> None:
            await self._publisher.control(flow, lambda control: replace(control, paused=""))
            self._assigner.go_on(self._publisher.present(flow))

        step = Step("resume", after, resume, "paused" if paused else flow.cause, "goes on")
        if flow.holding.halted_at:
            step.notes.append(
                f"update {flow.holding.halted_at} is delivered again; if its handler fails again, the flow halts again"
            )
        if not self._assigner.live_subscribers(flow.application):
            step.notes.append("no subscriber is there: it goes on when one comes")
        return step

    async def _set_marker(self, flow: PublisherFlow, wanted: admin_pb2.SetMarker) -> Step:
        _check_not_replayed(flow)
        source = self._publisher.source
        match wanted.WhichOneof("to"):
            case "place":
                to = await located(source, by_text(source, wanted.place))
            case "at_s":
                to = await located(source, by_time(source, wanted.at_s, self._publisher.clock.wall()))
            case _:
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the request does not say where to set the marker")
        return self._move("set-marker", flow, to)

    def _move(self, what: str, flow: PublisherFlow, to: Datamarker) -> Step:
        notes = distance(self._publisher.log_watch, flow.shard, flow.delivery.marker, to, self._publisher.clock.wall())
        notes.append("an application that keeps its place with its own data begins there, not at this one")
        if flow.control.paused:
            notes.append("the flow stays paused")
        if flow.halted:
            notes.append("it is halted: it still has to be resumed")

        async def move() -> None:
            await self._publisher.move(flow, to)
            await self._no_replay(flow)  # the marker first: until it is set the flow shows that it needs something
            await self._placed(flow)

        return Step(what, self._moved(flow, to), move, str(flow.delivery.marker), str(to), notes)

    def _moved(self, flow: PublisherFlow, to: Datamarker) -> admin_pb2.FlowStatus:
        after = self._status(flow)
        after.marker.CopyFrom(marker_to_message(to))
        after.place.CopyFrom(position_to_message(to.order))
        after.epoch += 1
        after.loss_pending = False
        lag = self._publisher.log_watch.lag(flow.shard, to, self._publisher.clock.wall())
        after.lag_s = lag.seconds
        after.ClearField("lag_bytes")
        after.ClearField("lag_transactions")
        if lag.bytes is not None:
            after.lag_bytes = lag.bytes
        if lag.transactions is not None:
            after.lag_transactions = lag.transactions
        return after

    def _skip(self, flow: PublisherFlow, update_id: str) -> Step:
        check_update_id(update_id)
        skipped = flow.control.skip
        if update_id in skipped:
            raise not_now(flow, f"update {update_id} is skipped already")
        if len(skipped) >= MOST_SKIPPED:
            raise not_now(
                flow,
                f"it skips {MOST_SKIPPED} updates already, which is the most",
                "wait until it has passed them, or set its datamarker behind them",
            )
        if is_behind(self._publisher.served.kind, update_id, flow.delivery.marker):
            raise not_now(flow, f"its datamarker {flow.delivery.marker} is behind update {update_id} already")
        here = flow.halted and flow.holding.halted_at == update_id
        after = self._status(flow)
        after.skip.append(update_id)

        async def skip() -> None:
            await self._publisher.control(flow, lambda control: replace(control, skip=(*control.skip, update_id)))
            if here:
                self._assigner.go_on(self._publisher.present(flow))
            self._ask_back(flow, f"skips {update_id} from now on")
            self._publisher.replays.fence(flow)

        step = Step("skip", after, skip, "", update_id, [f"{flow.application} never processes {update_id}"])
        if here:
            after.halted_at, after.state, after.cause = "", "unassigned", "goes on soon"
            step.notes.append("the flow is halted at this update and goes on behind it")
        elif flow.halted:
            at = f"at {flow.holding.halted_at or 'another update'}"
            step.notes.append(f"the flow is halted {at}, not at this update: it still has to be resumed")
        return step

    def _accept_loss(self, flow: PublisherFlow) -> Step:
        if _needs_replay(flow):
            after = self._status(flow)
            after.state, after.cause = "unassigned", "goes on soon"
            after.ClearField("replay")
            notes = [f"{flow.application} gets the missing range, and decides as at any loss of log", _repairs(flow)]
            return Step("accept-loss", after, lambda: self._no_replay(flow), "needs_replay", "goes on", notes)
        if flow.lost_record:
            after = self._status(flow)
            after.state, after.cause, after.loss_pending = "unassigned", "goes on soon", False
            begin = str(flow.delivery.marker)
            notes = [f"delivery begins at {begin}: what lies before and was not delivered never is", _repairs(flow)]
            return Step("accept-loss", after, lambda: self._placed(flow), str(flow.lost_record), begin, notes)
        if flow.loss.open is None:
            raise not_now(flow, "no loss of log is waiting for a decision")
        if flow.releasing:
            raise not_now(
                flow, f"{flow.holding.subscriber} gives it back just now, and would not go on", "try again in a moment"
            )
        if flow.stage is not Stage.DECLINED:
            raise not_now(
                flow, "its application is being asked about the loss just now", "wait for its answer, then look again"
            )
        gap, resume = flow.loss.open
        after = self._moved(flow, resume)
        after.epoch -= 1
        after.state, after.cause = "catching_up", ""
        what = "in no log any more" if gap.kind is LossKind.DIVERGED else "never delivered"

        async def accept() -> None:
            self._publisher.losses.decided(flow, True)

        notes = [f"{what}: {gap.message}{_missing(gap)}", _repairs(flow)]
        return Step("accept-loss", after, accept, gap.message, str(resume), notes)

    async def _letters(
        self, what: str, flow: PublisherFlow, ask: Callable[[PublisherFlow, str, bool], Awaitable[str]], key: str
    ) -> Step:
        note = await ask(flow, key, True)

        async def made() -> None:
            await ask(flow, key, False)
            self._publisher.replays.fence(flow)

        return Step(what, self._status(flow), made, f"{flow.parking.count} parked", key or "all", [note])

    async def _begin_anew(self, flow: PublisherFlow) -> Step:
        """Forget a flow that is served: as a new one it begins where the application's ``start`` says."""
        _check_not_replayed(flow)
        live = self._assigner.live_subscribers(flow.application)
        if live:
            raise not_now(flow, f"subscribers of {flow.application} are there: {', '.join(live)}", "stop them first")
        source, start = self._publisher.source, self._publisher.applications.start_of(flow.application)
        begin = by_start(source, start, self._publisher.clock.wall())
        step = self._move("forget", flow, await located(source, begin))
        step.after.paused, step.after.halted_at = "", ""
        del step.after.skip[:]
        move, now = step.do, self._publisher.clock.wall()

        async def forget() -> None:
            # The record stays, so that epochs never fall; what is in it begins anew. The marker last: until it is set,
            # the operator sees that nothing was done, and does it again.
            await self._publisher.dead_letters.forget(flow)
            await self._publisher.control(flow, lambda control: begun_anew(control, start, flow.filter.hash, now))
            self._assigner.go_on(flow)
            await move()

        step.do = forget
        return step

    async def _unserved(self, request: admin_pb2.ChangeRequest, key: FlowKey) -> tuple[Step, admin_pb2.FlowStatus]:
        """A flow that has a record at most: its application, or its shard, is no more. It can only be forgotten."""
        store = self._publisher.store
        records = await asyncio.to_thread(store.load)
        record = records.get(key)
        start = start_key(key[0], self._publisher.served.log)
        if record is None or key == start:
            raise no_flow(
                self._publisher, key, [flow_name(*name) for name in records if not name[1].endswith(".%start")]
            )
        if request.WhichOneof("what") != "forget":
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{request.flow} is not served: its application is not configured here, or the log does not "
                "have its shard",
                hint=f"configure the application, or `wormholectl markers forget {request.flow}`",
                code="flow-unknown",
            )
        if key[0] not in self._publisher.applications:
            there = [info.id for info in await self._publisher.coordinator.subscribers() if info.application == key[0]]
            if there:  # the next record's epochs begin anew, below those that these have seen
                raise RefusedError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"{request.flow}: subscribers of {key[0]} are there: {', '.join(sorted(there))}",
                    hint="stop them first",
                )
        before = admin_pb2.FlowStatus(flow=request.flow, state="unserved", epoch=record.epoch)
        before.marker.CopyFrom(marker_to_message(record.marker))
        last = not any(name[0] == key[0] and name not in (key, start) for name in records)

        async def forget() -> None:
            await asyncio.to_thread(store.dead_letters().forget, key)
            await asyncio.to_thread(store.forget, key)
            await self._publisher.known.forget(key)
            if last:
                await asyncio.to_thread(store.forget, start)
            self._publisher.applications.forgotten()

        gone = admin_pb2.FlowStatus(flow=request.flow, state="forgotten")
        return Step("forget", gone, forget, str(record.marker), "forgotten"), before

    # -- inside

    async def _no_replay(self, flow: PublisherFlow) -> None:
        """The flow no longer needs one."""
        if flow.control.replay is not None:
            await self._publisher.control(flow, lambda control: replace(control, replay=None))
            self._assigner.go_on(self._publisher.present(flow))

    async def _placed(self, flow: PublisherFlow) -> None:
        """It is known where the flow goes on."""
        if flow.lost_record:
            await self._publisher.restore_record(flow, flow.delivery.marker)
        if flow.control.missing:
            await self._publisher.control(flow, lambda control: replace(control, missing=NO_PROBLEM))
            self._assigner.go_on(self._publisher.present(flow))

    def _ask_back(self, flow: PublisherFlow, cause: str) -> None:
        flow = self._publisher.present(flow)
        self._assigner.recall(flow, cause)
        self._assigner.changed()

    def _status(self, flow: PublisherFlow) -> admin_pb2.FlowStatus:
        return flow_status(self._publisher, flow, self._publisher.lead_flows())

    def _state(self, flow: PublisherFlow) -> str:
        return self._publisher.state(flow, self._publisher.lead_flows()).value


def _needs_replay(flow: PublisherFlow) -> bool:
    replay = flow.control.replay
    return replay is not None and replay.state is ReplayState.NEEDS_REPLAY


def _missing(gap: LogGap) -> str:
    """What is missing, in brackets behind the message; empty where that names it."""
    first, last = gap.first_missing, gap.last_missing
    text = first if first and first == last else f"{first or '?'} to {last or '?'}"
    return "" if text in gap.message else f" ({text})"


def _repairs(flow: PublisherFlow) -> str:
    return f"`wormholectl repair {flow.name}` sends the rows that it lacks then"


def _check_not_replayed(flow: PublisherFlow) -> None:
    replay = flow.control.replay
    if replay is not None and not _needs_replay(flow):
        raise not_now(
            flow,
            f"replay {replay.id} by {replay.who} has it",
            f"wait until it is through, or `wormholectl replay --cancel {replay.id}`",
        )
