"""The client process of our SDK with one fault, named on the command line: the kit has to find each of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from conformance.clients import python
from subscriber_sdk.stream import outbox, session
from subscriber_sdk.stream.flow import SubscriberFlow
from subscriber_sdk.stream.session import Session
from subscriber_sdk.verify import verifying
from subscriber_sdk.work import flow_worker, shards
from subscriber_sdk.work.parking import Parking
from wormhole.model.errors import WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.values import Value
from wormhole.wire.body import ParsedBody, parse_body
from wormhole.wire.markers import marker_to_message
from wormhole.wire.update import Update
from wormhole.wire.v1 import push_pb2

_MUCH = 2000


def _after_frames(do: Callable[[Session, str, SubscriberFlow, Any], None]) -> None:
    """Have ``do`` called after each frame of a flow."""
    handle = Session._flow_frame

    def broken(self: Session, kind: str, flow: SubscriberFlow, given: Any, events: list[Any]) -> None:
        handle(self, kind, flow, given, events)
        do(self, kind, flow, given)

    Session._flow_frame = broken  # type: ignore[method-assign]


def acks_too_early() -> None:
    """In cases with a handler that hangs: elsewhere it is chance whether the datamarker comes before a failure."""
    begin, acting = python.Case.__init__, False
    again, acked = outbox.Outbox.ack, list[tuple[int, int, push_pb2.Datamarker]]()

    def begins(self: python.Case, case: Mapping[str, Any], say: Callable[..., None]) -> None:
        nonlocal acting
        begin(self, case, say)
        acting = any(do["do"] == "hang" for do in case.get("handler", {}).values())
        acked.clear()

    def ack(session: Session, kind: str, flow: SubscriberFlow, given: Any) -> None:
        if acting and kind == "datamarker":
            session._out.add(ack=push_pb2.Ack(flow=flow.number, epoch=flow.epoch, marker=given.marker))
            acked.append((flow.number, flow.epoch, given.marker))

    def once(self: outbox.Outbox, flow: SubscriberFlow, marker: Datamarker) -> None:
        if (flow.number, flow.epoch, marker_to_message(marker)) not in acked:  # a repeated one is another breach
            again(self, flow, marker)

    python.Case.__init__ = begins  # type: ignore[method-assign]
    outbox.Outbox.ack = once  # type: ignore[method-assign]
    _after_frames(ack)


def returns_credit_too_early() -> None:
    def progress(session: Session, kind: str, flow: SubscriberFlow, given: Any) -> None:
        if kind == "batch" and flow.in_flight > _MUCH:
            session._out.add(progress=push_pb2.Progress(flow=flow.number, epoch=flow.epoch, number=given.number))

    _after_frames(progress)


def counts_nothing() -> None:
    for module in (session, outbox):
        module.processed_to_messages = lambda *_: []  # type: ignore[attr-defined]


def finds_no_difference() -> None:
    verifying.compare = lambda *_: []  # type: ignore[attr-defined]


def reports_nothing() -> None:
    Session.report = lambda *_: None  # type: ignore[method-assign]


def passes_over_unreadable_updates() -> None:
    handle = python.Case.on_update

    async def on_update(self: python.Case, update: Update) -> None:
        with suppress(WormholeError, ValueError, ArithmeticError):
            await handle(self, update)

    python.Case.on_update = on_update  # type: ignore[method-assign]


def ignores_epochs() -> None:
    shards._Shard.refusal = lambda *_: None  # type: ignore[method-assign]


def forgets_a_part() -> None:
    take = SubscriberFlow.part

    def part(self: SubscriberFlow, frame: push_pb2.Part) -> bytes | None:
        body = take(self, frame)
        return body if body is None or not frame.index else body[: -len(frame.data)]

    SubscriberFlow.part = part  # type: ignore[method-assign]


def reorders() -> None:
    parse = parse_body

    def swapped(data: bytes) -> ParsedBody:
        body = parse(data)
        several = len(body.tx_number) > 1 and len(body.schema_ids) == 1
        return replace(body, updates=tuple(reversed(body.updates))) if several else body

    flow_worker.parse_body = swapped  # type: ignore[attr-defined]


def counts_as_parked_at_once() -> None:
    park = Parking.park

    async def parks(self: Parking, update: Any, error: Exception | None) -> bool:
        parked = asyncio.ensure_future(park(self, update, error))
        await asyncio.sleep(0)
        if error is not None:
            self.answered(update.id, "")
        return await parked

    Parking.park = parks  # type: ignore[method-assign]


def takes_holes() -> None:
    begin = SubscriberFlow._begin

    def begins(self: SubscriberFlow, kind: str, number: int, size: int, field: str) -> None:
        self._last = number - 1
        begin(self, kind, number, size, field)

    SubscriberFlow._begin = begins  # type: ignore[method-assign]


def _values(change: Callable[[dict[str, Any]], None]) -> None:
    shown = python.shown_value

    def broken(value: Value) -> dict[str, Any]:
        found = shown(value)
        change(found)
        return found

    python.shown_value = broken


def decimals_as_floats() -> None:
    def change(found: dict[str, Any]) -> None:
        if found["type"] == "decimal":
            found["value"] = str(float(found["value"]))

    _values(change)


def integers_as_floats() -> None:
    def change(found: dict[str, Any]) -> None:
        if found["type"] == "int":
            found["value"] = str(int(float(found["value"])))

    _values(change)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    asyncio.run(python.main())
