"""Records the frames that were sent to a client, and checks the client's frames and lines against them. Pure.

The rules of docs/wire.md hold in every case, so a case only lists its special expectations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.lines import AnyOrder, agrees, differs, update_lines
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import place_of
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["Breach", "Delivery", "Ledger"]

_STREAM_FRAMES: Final = frozenset({"welcome", "heartbeat", "goodbye"})
_LATER_KNOWN: Final = frozenset({"ends_transaction", "position", "replayed"})
_KINDS: Final = {1: "replay_begin", 2: "replay_end"}


class Breach(Exception):  # noqa: N818 - a fault of the client, not of this program
    """The client violates the protocol, or docs/conformance.md."""


@dataclass(slots=True)
class _Item:
    """A line that the client has to print, in the order of delivery. ``done``: whether its handler has returned."""

    event: str
    line: Mapping[str, Any]
    update: str = ""
    encoded: tuple[bytes, Schema] = (b"", Schema("", (), ()))
    done: bool = False
    calls: int = 0
    """The number of calls of its handler."""
    late: bool = False
    """Whether a client may print the item only after the next frame, which shows whether the transaction ends."""


@dataclass(slots=True)
class Delivery:
    """One epoch of a flow on one stream."""

    assign: push_pb2.Assign
    items: list[_Item] = field(default_factory=list)
    at: int = 0
    """The index of the item that has to be printed next."""
    first: int = 0
    """The index of the item after the last acknowledged datamarker. After a failure printing may restart there."""
    batches: list[int] = field(default_factory=list)
    """The number of items before the end of each batch."""
    markers: list[tuple[push_pb2.Datamarker, int]] = field(default_factory=list)
    """Each datamarker that was offered, and the number of items before it."""
    acked: push_pb2.Datamarker | None = None
    progress: int = 0
    accepted: bool = False
    assigned: bool = False
    over: str = ""
    """The kind of the frame that ended the epoch: a frame of the client, or ``revoke``; empty before."""
    failing: int | None = None
    """The index of the item whose handler failed; ``None`` when a later item was printed. Until then items may be
    printed again."""
    revoked: Mapping[str, Any] | None = None
    rolled_back: bool = False
    aside: set[str] = field(default_factory=set)
    """The updates for which no handler is called: skipped, parked, or compared in a verification."""
    ranges: set[str] = field(default_factory=set)
    """The tables for which a ``ChunkEnd`` was sent."""
    parcel: bytes = b""
    decisions: int = 0
    unreadable: bool = False
    """Whether an update was sent that the client cannot read, so that its callback may fail."""

    def lacks(self, upto: int) -> str:
        """The id of the first unprocessed update before item ``upto``; empty: there is none."""
        for number, item in enumerate(self.items[:upto], 1):
            kept_back = item.late and number == upto
            if item.event == "update" and not item.done and not kept_back and item.update not in self.aside:
                return item.update
        return ""


class Ledger:
    """The record and the checks of one case. Methods raise :class:`Breach`."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self._case = case
        self._script: dict[str, dict[str, Any]] = {name: dict(do) for name, do in case.get("handler", {}).items()}
        self._schemas: dict[int, Schema] = {}
        self._hanging: list[_Item] = []
        self._parts: dict[tuple[int, int], bytes] = {}
        self.deliveries: dict[tuple[int, int, int], Delivery] = {}
        self._of_shard: dict[tuple[str, int], Delivery] = {}

    # --- the publisher's frames

    def sent(self, stream: int, frame: push_pb2.PublisherFrame) -> None:
        """Record a frame of the publisher, which keeps the rules."""
        kind = str(frame.WhichOneof("kind"))
        given = getattr(frame, kind)
        match kind:
            case "assign":
                delivery = Delivery(given, aside=set(given.skip))
                self.deliveries[stream, given.flow, given.epoch] = delivery
                self._of_shard[given.shard, given.epoch] = delivery
            case "schema":
                self._schemas[given.id] = Schema.from_canonical(given.canonical)
            case "hello" | "heartbeat" | "goodbye" | "parked":
                pass
            case _:
                delivery = self.deliveries[stream, given.flow, given.epoch]
                if not delivery.over:
                    self._queue(stream, kind, given, delivery)

    def unreadable(self, stream: int, flow: int, epoch: int) -> None:
        """Record that an update was sent to this flow that the client cannot read."""
        self.deliveries[stream, flow, epoch].unreadable = True

    def _queue(self, stream: int, kind: str, given: Any, delivery: Delivery) -> None:
        where = {"shard": delivery.assign.shard, "epoch": given.epoch}

        def add(event: str, **line: Any) -> None:
            delivery.items.append(_Item(event, {**where, **line}))

        match kind:
            case "batch":
                self._batch(given.body, given.replayed, delivery)
            case "part":
                body = self._parts.pop((stream, given.flow), b"") + given.data
                if given.last:
                    self._batch(body, given.replayed, delivery)
                else:
                    self._parts[stream, given.flow] = body
            case "datamarker":
                delivery.markers.append((given.marker, len(delivery.items)))
                add("datamarker", marker=given.marker)
            case "notice":
                add(_KINDS[given.kind], **({"latest": given.latest} if given.kind == given.REPLAY_BEGIN else {}))
            case "data_loss":
                resume = given.resume if given.HasField("resume") else None
                loss = {"first_missing": given.first_missing, "last_missing": given.last_missing, "resume": resume}
                add("data_loss", kind=push_pb2.DataLoss.Kind.Name(given.kind).lower(), **loss)
            case "chunk_end" if delivery.assign.verify:
                table = self._schemas[given.schema].table
                delivery.ranges.add(table)
                if given.alone:
                    add("chunk_end", table=table, alone=AnyOrder(list(key.values) for key in given.alone))
            case "chunk_end" if not given.narrowed and (given.portable or given.alone):
                ends = {
                    name: list(getattr(given, name).values) if given.HasField(name) else None
                    for name in ("after", "until")
                }
                keys = {name: AnyOrder(list(k.values) for k in getattr(given, name)) for name in ("except", "alone")}
                add("chunk_end", table=self._schemas[given.schema].table, rows=given.rows, **ends, **keys)
            case "scan_end" if not delivery.assign.verify:
                add("scan_end", table=given.table, generation=given.generation, rows=given.rows)
            case "revoke":
                delivery.over = "revoke"

    def _batch(self, data: bytes, replayed: bool, delivery: Delivery) -> None:
        body = parse_body(data)
        assign = delivery.assign
        shared = {
            "shard": assign.shard,
            "epoch": assign.epoch,
            "replayed": replayed,
            "generation": assign.generation,
        }
        for line, row, schema in update_lines(data, self._schemas.__getitem__, **shared):
            item = _Item("update", line, line["id"], (row.SerializeToString(), schema))
            delivery.items.append(item)
            if assign.verify and row.op == update_pb2.READ:
                repaired = assign.verify == push_pb2.VERIFY_REPAIR and differs(line, self._case["holds"][line["table"]])
                delivery.aside.update(() if repaired else [item.update])
        if len(body.tx_end) < len(body.tx_number) and delivery.items and len(body.updates):
            late = delivery.items[-1]
            late.late = True
            late.line = {name: value for name, value in late.line.items() if name not in _LATER_KNOWN}
        delivery.batches.append(len(delivery.items))

    # --- what the client prints

    def printed(self, line: Mapping[str, Any]) -> None:
        """Check a line of the client."""
        event, said = line["event"], {name: value for name, value in line.items() if name != "event"}
        if event in {"error", "end"}:
            return
        delivery = self._of_shard.get((said.get("shard", ""), said.get("epoch", 0)))
        if delivery is None:
            raise Breach(f"printed {event} of a shard and epoch that were not assigned: {said}")
        if delivery.revoked is not None:
            raise Breach(f"printed {event} after revoked: {said}")
        match event:
            case "assigned":
                _expect(event, _assigned(delivery.assign), said)
                delivery.assigned = True
            case "revoked":
                delivery.revoked = said
            case "rolled_back":
                self._rolled_back(delivery, said)
            case _:
                self._printed(event, said, delivery)

    def _printed(self, event: str, said: Mapping[str, Any], delivery: Delivery) -> None:
        rolled_back = delivery.assign.rolled_back
        if rolled_back and not delivery.rolled_back:
            raise Breach(f"printed {event} before rolled_back, although {rolled_back} was rolled back")
        wanted = (event, said.get("id", "") if event == "update" else "")
        if delivery.failing is not None:
            for number in range(delivery.first, delivery.at):
                if (delivery.items[number].event, delivery.items[number].update) == wanted:
                    return self._reached(number, said, delivery)
        for number in range(delivery.at, len(delivery.items)):
            item = delivery.items[number]
            if (item.event, item.update) == wanted:
                return self._reached(number, said, delivery)
            if item.event != "datamarker" and item.update not in delivery.aside:
                raise Breach(f"printed {' '.join(wanted).strip()} where {item.event} {item.update} was due")
        raise Breach(f"printed {event} that was not due: {said}")

    def _reached(self, number: int, said: Mapping[str, Any], delivery: Delivery) -> None:
        item = delivery.items[number]
        _expect(item.event, item.line, said)
        if item.update in delivery.aside:
            raise Breach(f"called the handler with {item.update}, which is skipped or parked")
        delivery.at = number + 1
        item.calls += 1
        if delivery.failing is not None and number > delivery.failing:
            delivery.failing = None
        script = self._script.get(item.update, {})
        if script.get("do") == "raise" and script.get("times", 1) > 0:
            if "times" in script:
                script["times"] -= 1
            delivery.failing, item.done = number, False
        elif script.get("do") in {"hang", "exit"}:
            self._hanging.append(item)
            del self._script[item.update]
        else:
            item.done = True

    def _rolled_back(self, delivery: Delivery, said: Mapping[str, Any]) -> None:
        may = delivery.unreadable or (delivery.assign.rolled_back and not delivery.rolled_back)
        if delivery.failing is None and not may:
            raise Breach(f"printed rolled_back, although nothing failed: {said}")
        places = [delivery.assign.marker, *(marker for marker, _ in delivery.markers)]
        if not any(agrees(place, said["marker"]) for place in places):
            raise Breach(f"rolled back to {said['marker']}, which is no place of this epoch")
        delivery.rolled_back = True

    def resumed(self) -> None:
        """Record that handlers that hang return now."""
        for item in self._hanging:
            item.done = True
        self._hanging.clear()

    # --- the client's frames

    def lacks(self, stream: int, frame: push_pb2.SubscriberFrame) -> str:
        """The line that the client has to print before this frame, and has not printed yet; empty: there is none."""
        kind = str(frame.WhichOneof("kind"))
        given = getattr(frame, kind)
        if kind in _STREAM_FRAMES:
            return ""
        delivery = self.deliveries.get((stream, given.flow, given.epoch))
        if delivery is None:
            return ""
        if kind == "accepted" and not delivery.assigned:
            return "the event assigned"
        if kind in {"park", "failed"} and self._attempts_lack(given, delivery):
            return f"{self._case['max_attempts']} calls of the handler with {given.update_id}"
        if kind == "progress" and given.number <= len(delivery.batches):
            lacking = delivery.lacks(delivery.batches[given.number - 1]) if given.number else ""
            return lacking and f"the end of the handler of {lacking}"
        if kind == "ack" and (number := _offered(delivery, given.marker)) is not None:
            if lacking := delivery.lacks(number):
                return f"the end of the handler of {lacking}"
            return "" if delivery.at > number else "the event datamarker"
        return ""

    def _attempts_lack(self, given: Any, delivery: Delivery) -> bool:
        """Whether the client gives an update up before it was tried as often as the case requires."""
        given_up = given.error if isinstance(given, push_pb2.Park) else given.reason == push_pb2.Failed.HANDLER
        calls = max((item.calls for item in delivery.items if item.update == given.update_id), default=0)
        return bool(given_up) and not delivery.unreadable and calls < self._case["max_attempts"]

    def received(self, stream: int, frame: push_pb2.SubscriberFrame) -> None:
        """Check a frame of the client."""
        kind = str(frame.WhichOneof("kind"))
        given = getattr(frame, kind)
        if kind in _STREAM_FRAMES:
            if kind == "welcome" and given.max_frame_bytes != self._case["max_frame"]:
                raise Breach(f"welcome.max_frame_bytes {given.max_frame_bytes}, not {self._case['max_frame']}")
            return
        delivery = self.deliveries.get((stream, given.flow, given.epoch))
        if delivery is None:
            raise Breach(f"{kind} of flow {given.flow} epoch {given.epoch}, which was not assigned on this stream")
        newer = [d for (s, f, e), d in self.deliveries.items() if (s, f) == (stream, given.flow) and e > given.epoch]
        if any(one.accepted for one in newer):
            raise Breach(f"{kind} of epoch {given.epoch}, after a newer one was accepted")
        if delivery.over not in {"", "revoke"} and (delivery.over, kind) != ("failed", "released"):
            raise Breach(f"{kind} of flow {given.flow} epoch {given.epoch} after {delivery.over}")
        if not delivery.accepted and kind not in {"accepted", "failed", "released"}:
            raise Breach(f"{kind} before accepted")
        checked = getattr(self, f"_check_{kind}", None)
        if checked is not None:
            checked(given, delivery)

    def _check_accepted(self, given: push_pb2.Accepted, delivery: Delivery) -> None:
        if delivery.accepted:
            raise Breach("accepted twice")
        delivery.accepted = True
        if given.credit != self._case["credit"]:
            raise Breach(f"accepted.credit {given.credit}, not {self._case['credit']}")

    def _check_progress(self, given: push_pb2.Progress, delivery: Delivery) -> None:
        if given.number and not delivery.progress <= given.number <= len(delivery.batches):
            raise Breach(
                f"progress.number {given.number} after {delivery.progress}, of {len(delivery.batches)} batches"
            )
        delivery.progress = max(delivery.progress, given.number)

    def _check_ack(self, given: push_pb2.Ack, delivery: Delivery) -> None:
        number = _offered(delivery, given.marker)
        if number is None:
            raise Breach(f"ack.marker was not offered in this epoch, or not again after the last ack: {given.marker}")
        delivery.first, delivery.acked = number + 1, given.marker

    def _check_released(self, given: push_pb2.Released, delivery: Delivery) -> None:
        if given.HasField("marker") != (delivery.acked is not None) or (
            delivery.acked is not None and given.marker != delivery.acked
        ):
            raise Breach(f"released.marker {given.marker}, but the last acknowledged one is {delivery.acked}")
        delivery.over = "released"

    def _check_verified(self, given: push_pb2.Verified, delivery: Delivery) -> None:
        if not delivery.assign.verify:
            raise Breach(f"verified of flow {given.flow}, which is not verified")
        if given.table not in delivery.ranges:
            raise Breach(f"verified of table {given.table!r} before a chunk_end of it")

    def _check_failed(self, given: push_pb2.Failed, delivery: Delivery) -> None:
        delivery.over = "failed"

    def _check_loss_decision(self, given: push_pb2.LossDecision, delivery: Delivery) -> None:
        delivery.decisions += 1
        if delivery.decisions > sum(item.event == "data_loss" for item in delivery.items):
            raise Breach("loss_decision without data_loss")
        if given.proceed != (self._case["data_loss"] == "continue"):
            raise Breach(f"loss_decision.proceed {given.proceed}")

    def _check_park(self, given: push_pb2.Park, delivery: Delivery) -> None:
        delivery.parcel += given.body
        if given.more:
            return
        parcel, delivery.parcel = delivery.parcel, b""
        item = next((item for item in delivery.items if item.update == given.update_id), None)
        if item is None:
            raise Breach(f"park of {given.update_id}, which was not sent in this epoch")
        row, schema = item.encoded
        body = parse_body(parcel)
        update = Batch(body, "", 0, False, lambda _: schema).updates()[0]
        if [*map(bytes, body.updates)] != [row] or update.id != given.update_id or given.schema != schema.canonical:
            raise Breach(f"park of {given.update_id}: body or schema is not that of the update")
        if place_of(update).transaction != given.place.transaction or given.place.index != update.index:
            raise Breach(f"park.place {given.place}")
        delivery.aside.add(given.update_id)

    def unreleased(self, stream: int) -> list[int]:
        """The numbers of the flows of a stream that were accepted and have not ended."""
        newest: dict[int, Delivery] = {}
        for (at, flow, epoch), delivery in self.deliveries.items():
            if at == stream and delivery.accepted and (flow not in newest or newest[flow].assign.epoch < epoch):
                newest[flow] = delivery
        return [flow for flow, delivery in newest.items() if delivery.over in {"", "revoke"}]

    def ended(self) -> None:
        """Make the checks that are only possible at the end of the case."""
        for delivery in self.deliveries.values():
            if delivery.assigned and delivery.revoked is None and self._of_shard.get(_place(delivery)) is delivery:
                raise Breach(f"revoked of {delivery.assign.shard} epoch {delivery.assign.epoch} was not printed")
            if delivery.revoked is not None:
                said = {"shard": delivery.assign.shard, "epoch": delivery.assign.epoch, "marker": delivery.acked}
                _expect("revoked", said, delivery.revoked)


def _place(delivery: Delivery) -> tuple[str, int]:
    return delivery.assign.shard, delivery.assign.epoch


def _offered(delivery: Delivery, marker: push_pb2.Datamarker) -> int | None:
    """The number of items before the datamarker; ``None``: the datamarker was not offered since the last acknowledged
    one.
    """
    offers = (number for offered, number in delivery.markers if offered == marker)
    return next((number for number in offers if number >= delivery.first), None)


def _assigned(assign: push_pb2.Assign) -> dict[str, Any]:
    return {
        "shard": assign.shard,
        "epoch": assign.epoch,
        "marker": assign.marker,
        "move": assign.move,
        "rewound": assign.rewound,
        "acknowledged": assign.acknowledged,
        "generation": assign.generation,
    }


def _expect(event: str, line: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    for name, value in line.items():
        if name not in said:
            raise Breach(f"{event} without {name}: {said}")
        if not agrees(value, said[name]):
            raise Breach(f"{event} {said.get('id', '')}: {name} is {said[name]!r}, expected {_shown(value)}")


def _shown(value: Any) -> str:
    shown: Callable[[Any], Any] = lambda one: str(one).replace("\n", " ").strip() or "(no value)"  # noqa: E731
    match value:
        case update_pb2.Value() | push_pb2.Datamarker():
            return str(shown(value))
        case Mapping():
            return str({name: _shown(one) for name, one in value.items()})
        case list() | tuple():
            return str([*map(_shown, value)])
        case _:
            return repr(value)
