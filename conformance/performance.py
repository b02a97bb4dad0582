"""Runs one case step by step: sends frames to the client, and waits for the frames and lines that the steps expect.

Each verb of a step (docs/conformance.md, "A case of the kit") is a method ``_do_...``. Any other verb is the kind of a
frame of the publisher.
"""

from __future__ import annotations

import asyncio
import base64
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict

from conformance.frames import body_of, filled, frame_of, joined, marker_of, value_of, verified_of
from conformance.ledger import Breach, Ledger
from conformance.lines import held_row
from conformance.process import ClientProcess
from conformance.stage import Call, stage
from tests.support.certificates import Authority
from wormhole.host.trust import Trust
from wormhole.model.schema import Column, Schema
from wormhole.wire.v1 import push_pb2

__all__ = ["Performance", "perform"]

_DEFAULTS: Final = {
    "application": "app",
    "id": "one",
    "max_attempts": 3,
    "first_wait_ms": 1,
    "credit": 1 << 16,
    "max_frame": 1 << 20,
    "max_body": 1 << 21,
    "data_loss": "halt",
}
_TRACKED: Final = frozenset({"progress", "report", "verified", "heartbeat"})
"""The kinds of frames that are checked although no step expects them."""
_FLOWLESS: Final = frozenset({"hello", "schema", "heartbeat", "goodbye"})
_PUBLISHER: Final = "publisher"
_NO_KEY: Final = frozenset({None, "null", "unavailable", "entries"})
_OWN_FIELDS: Final = frozenset({"on", "unchecked"})
_Frame = push_pb2.SubscriberFrame


class _Stream:
    """A stream that the client opened and the case uses."""

    def __init__(self, number: int, call: Call) -> None:
        self.number = number
        self.call = call
        self.epochs: dict[int, int] = {}
        self.batches: dict[int, int] = defaultdict(int)
        self.schemas: set[int] = set()
        self.frames: dict[int, deque[_Frame]] = defaultdict(deque)
        self.progress: dict[tuple[int, int], int] = defaultdict(int)
        self.reports: dict[int, push_pb2.HandlerReport] = {}
        self.counts: dict[int, dict[int, push_pb2.Processed]] = defaultdict(dict)
        self.verified: dict[int, push_pb2.Verified] = defaultdict(push_pb2.Verified)
        self.beats = 0
        self.sent_at = 0.0
        self.gathered: list[push_pb2.PublisherFrame] | None = None
        self.said = ""
        self.waits: Callable[[], str] | None = None
        self.goodbye: push_pb2.Goodbye | None = None


class Performance:
    """A case that runs."""

    def __init__(self, case: Mapping[str, Any], client: ClientProcess, patience: float, start: float) -> None:
        self._steps = case["steps"]
        self._client = client
        self._patience = patience
        self._start = start
        self._pulse = asyncio.Event()
        self._problem: Breach | None = None
        self._streams: dict[int, _Stream] = {}
        self._arrived: dict[str, deque[Call]] = {"dial": deque(), "second": deque()}
        self._lines: list[Mapping[str, Any]] = []
        self._read = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        self._leaving: list[_Stream] | None = None
        given = {**_DEFAULTS, **case.get("client", {})}
        for kept in given.get("have", {}).values():
            kept["marker"] = base64.b64encode(marker_of(kept["marker"]).SerializeToString()).decode()
        if "holds" in given:
            given["holds"] = {table: [*map(held_row, rows)] for table, rows in given["holds"].items()}
        self.given: dict[str, Any] = {"case": case["name"], **given}
        self.ledger = Ledger(self.given)

    async def run(self) -> None:
        """Run every step, then stop the client gracefully if no step did. Raises :class:`Breach`."""
        self._client.heard = self._heard
        try:
            await self._client.say(self.given)
            await self._all(self._steps)
            if not self._stopped:
                await self._do_stop({}, {})
            self._check()
            self.ledger.ended()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _all(self, steps: Iterable[Any]) -> None:
        for step in steps:
            await self._step({step: {}} if isinstance(step, str) else dict(step))

    async def _step(self, step: dict[str, Any]) -> None:
        verb = next(iter(step))
        given = step.pop(verb)
        do = getattr(self, f"_do_{verb}", None)
        try:
            if do is not None:
                await do(given, step)
            else:
                await self._send(verb, given, step)
        except Breach as breach:
            held_up = [f"; {stream.waits()}" for stream in self._streams.values() if stream.waits is not None]
            raise Breach(f"step {verb} {given!s:.200}: {breach}{''.join(held_up)}") from breach

    # --- what the client does

    def take(self, at: str) -> Callable[[Call], None]:
        """The callback for each stream that the client opens at address ``at``."""

        def taken(call: Call) -> None:
            self._arrived[at].append(call)
            self._pulse.set()

        return taken

    def _heard(self, line: Mapping[str, Any] | Breach) -> None:
        try:
            if isinstance(line, Breach):
                raise line
            self._lines.append(line)
            if line["event"] != "exit":
                self.ledger.printed(line)
        except Breach as breach:
            self._problem = self._problem or breach
        self._pulse.set()

    async def _listen(self, stream: _Stream) -> None:
        try:
            async for frame in stream.call.frames():
                stream.waits = partial(self._too_early, stream, frame)
                await self._until(partial(self._may_come, stream, frame), stream.waits)
                stream.waits = None
                self._received(stream, frame)
        except Breach as breach:
            self._problem = self._problem or breach
        self._pulse.set()

    def _may_come(self, stream: _Stream, frame: _Frame) -> bool:
        return not self.ledger.lacks(stream.number, frame)

    def _too_early(self, stream: _Stream, frame: _Frame) -> str:
        return f"sent {frame.WhichOneof('kind')} before {self.ledger.lacks(stream.number, frame)}"

    def _received(self, stream: _Stream, frame: _Frame) -> None:
        kind = frame.WhichOneof("kind")
        if kind is None:
            raise Breach("sent a frame of no known kind")
        given = getattr(frame, kind)
        if stream.goodbye is not None:
            raise Breach(f"sent {kind} after goodbye")
        if (stream.said == "") != (kind == "welcome") and not (kind == "goodbye" and not stream.said):
            raise Breach(f"sent {kind}, after {stream.said or 'nothing'}")
        stream.said = kind
        self.ledger.received(stream.number, frame)
        if kind == "goodbye":
            stream.goodbye = given
        if kind == "heartbeat":
            stream.beats += 1
        if kind == "progress":
            stream.progress[given.flow, given.epoch] = max(stream.progress[given.flow, given.epoch], given.number)
        if kind == "report":
            stream.reports[given.flow] = given.handler
        if kind == "verified":
            joined(stream.verified[given.flow], given)
        stream.counts[getattr(given, "flow", 0)].update((one.window, one) for one in getattr(given, "processed", ()))
        if kind not in _TRACKED:
            stream.frames[getattr(given, "flow", 0)].append(frame)
        self._pulse.set()

    async def _until(
        self, holds: Callable[[], Any], what: str | Callable[[], str], patience: float | None = None
    ) -> None:
        """Wait until ``holds()`` is true. Raises :class:`Breach` after ``patience`` seconds, or for any earlier breach
        of the rules. ``what``: the message for the timeout."""
        try:
            async with asyncio.timeout(patience or self._patience):
                while not holds():
                    self._check()
                    self._pulse.clear()
                    await self._pulse.wait()
        except TimeoutError:
            raise Breach(what if isinstance(what, str) else what()) from None

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    # --- steps that send

    async def _send(self, kind: str, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        stream = self._stream(step)
        fields, extra = dict(given), bytes.fromhex(step.get("extra", ""))
        if kind == "assign":
            fields = {"flow": 1, "epoch": 1, "application": self.given["application"], "shard": "s", **fields}
            fields = {"marker": 0, **fields}
            stream.epochs[fields["flow"]] = int(fields["epoch"])
            stream.batches[fields["flow"]] = 0
        elif kind not in _FLOWLESS:
            flow = fields.setdefault("flow", 1)
            fields.setdefault("epoch", stream.epochs.get(flow, 1))
        frame = frame_of(kind, fields)
        getattr(frame, kind).MergeFromString(extra)
        await self._write(stream, frame, unchecked=step.get("unchecked", False))

    async def _write(self, stream: _Stream, *frames: push_pb2.PublisherFrame, unchecked: bool = False) -> None:
        """Send frames. ``unchecked``: the ledger does not record them, because they break the protocol, or are late."""
        for frame in frames:
            if not unchecked:
                self.ledger.sent(stream.number, frame)
        stream.sent_at = asyncio.get_running_loop().time()
        if stream.gathered is not None:
            stream.gathered.extend(frames)
        else:
            await stream.call.send(push_pb2.PublisherMessage(frames=frames).SerializeToString())

    def _stream(self, step: Mapping[str, Any]) -> _Stream:
        return self._streams[step.get("on", max(self._streams))]

    async def _do_connect(self, at: str | Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Wait until the client opens a stream, at ``dial`` or at the ``second`` address."""
        arrived = self._arrived[at if isinstance(at, str) else "dial"]
        patience = self._patience if self._streams else max(self._start, self._patience)
        await self._until(lambda: any(not call.ended for call in arrived), "it did not dial", patience)
        while arrived[0].ended:  # the client ended this stream before the case took it
            arrived.popleft()
        stream = _Stream(len(self._streams) + 1, arrived.popleft())
        self._check_metadata(stream.call.metadata)
        self._streams[stream.number] = stream
        self._tasks.append(asyncio.create_task(self._listen(stream)))

    def _check_metadata(self, metadata: Mapping[str, Any]) -> None:
        expected = {
            "wormhole-application-bin": self.given["application"].encode(),
            "wormhole-subscriber-bin": self.given["id"].encode(),
        }
        if "token" in self.given:
            expected["wormhole-token"] = self.given["token"]
        for name, value in expected.items():
            if metadata.get(name) != value:
                raise Breach(f"metadata {name} is {metadata.get(name)!r}, expected {value!r}")
        every = [metadata, *(stream.call.metadata for stream in self._streams.values())]
        instances = {one.get("wormhole-instance") for one in every}
        if len(instances) > 1 or instances & {None, ""}:
            raise Breach(f"metadata wormhole-instance: {instances}; each stream has the same text")

    async def _do_hello(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        hello = {
            "min_version": 3,
            "max_version": 3,
            "publisher": "test/main/log@host:1",
            "dataset": "test",
            "copy": "main",
            "log": "log",
            "application": self.given["application"],
            "subscriber": self.given["id"],
            "heartbeat_ms": 60_000,
            "max_frame_bytes": 1 << 20,
            "owner": "owner-1",
        }
        await self._send("hello", {**hello, **given}, step)

    async def _do_welcomed(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Open a stream and exchange Hello and Welcome. ``given``: fields of Hello."""
        await self._do_connect(step.get("at", "dial"), {})
        await self._do_hello(given, {})
        who = {"application": self.given["application"], "subscriber": self.given["id"]}
        await self._do_expect("welcome", {"version": 3, **who})

    async def _do_open(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Open a stream, assign a flow and wait for Accepted. ``given``: fields of Assign; ``hello``: those of
        Hello.
        """
        await self._do_welcomed(step.get("hello", {}), step)
        await self._do_flow(given, {})

    async def _do_flow(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Assign a flow on an open stream and wait for Accepted."""
        await self._send("assign", given, step)
        await self._do_expect("accepted", {"flow": given.get("flow", 1), **step})

    async def _do_commit(self, number: int, step: Mapping[str, Any]) -> None:
        """Send a batch with transaction ``number``, and its datamarker. By default it inserts the row ``number``."""
        updates = step.get("updates", [number])
        await self._do_batch({"tx": number, "updates": updates, **step}, step)
        where = {name: step[name] for name in ("flow", "epoch") if name in step}
        await self._send("datamarker", {"marker": step.get("marker", number), **where}, _own(step))

    async def _do_batch(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Send a batch of one transaction (``tx``, ``updates``) or several (``transactions``), after the schemas that
        the stream lacks. ``parts``: the bytes of each part in which it is sent. ``break``: a change of its body.
        """
        given = dict(given)
        stream = self._stream(step)
        if isinstance(given.get("body"), str):
            await self._send("batch", {"number": stream.batches[1] + 1, **given}, step)
            return
        ends, flow = given.get("ends", True), given.get("flow", 1)
        body, schemas = body_of(given.get("transactions", [given]), ends=ends, first_index=given.get("first_index", 0))
        for name, value in given.get("break", {}).items():
            body.ClearField(name)
            filled(body, {name: value})
        await self._teach(stream, schemas)
        stream.batches[flow] += 1
        fields = {
            "flow": flow,
            "epoch": given.get("epoch", stream.epochs.get(flow, 1)),
            "number": given.get("number", stream.batches[flow]),
            "replayed": given.get("replayed", False),
            "unfinished": not ends,
        }
        data = body.SerializeToString()
        frames = [push_pb2.PublisherFrame(batch=push_pb2.Batch(body=data, **fields))]
        if size := given.get("parts"):
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            frames = [
                push_pb2.PublisherFrame(
                    part=push_pb2.Part(
                        index=index, last=index == len(pieces) - 1, total_bytes=len(data), data=piece, **fields
                    )
                )
                for index, piece in enumerate(pieces)
            ]
        for frame in frames[given.get("from", 0) : given.get("upto")]:
            await self._write(stream, frame, unchecked=bool(step.get("unchecked", False)))

    async def _do_unreadable(self, updates: Sequence[Any], step: Mapping[str, Any]) -> None:
        """Send a batch with updates that the client cannot read. It prints none of them, and its flow halts."""
        stream = self._stream(step)
        self.ledger.unreadable(stream.number, 1, stream.epochs[1])
        await self._do_batch({"tx": step["tx"], "updates": updates}, {"unchecked": True})
        await self._do_expect("failed", {"reason": "HANDLER"})

    async def _teach(self, stream: _Stream, schemas: list[Schema]) -> None:
        for schema in schemas:
            if schema.id not in stream.schemas:
                stream.schemas.add(schema.id)
                canonical = base64.b64encode(schema.canonical).decode()
                await self._send("schema", {"id": str(schema.id), "canonical": canonical}, {"on": stream.number})

    async def _do_repeat(self, times: int, step: Mapping[str, Any]) -> None:
        """Run the steps in ``step`` ``times`` times."""
        for _ in range(times):
            await self._all(step["steps"])

    async def _do_together(self, steps: Sequence[Any], step: Mapping[str, Any]) -> None:
        """Send the frames of these steps in one message."""
        stream = self._stream(step)
        stream.gathered = []
        await self._all(steps)
        frames, stream.gathered = stream.gathered, None
        await stream.call.send(push_pb2.PublisherMessage(frames=frames).SerializeToString())

    async def _do_values(self, values: Sequence[Any], step: Mapping[str, Any]) -> None:
        """Send two updates for each of these values: one has the value before and after, the other has it as its
        key."""
        sides = [{"before": {"v": value}, "after": {"v": value}} for value in values]
        keys = [value for value in values if value_of(value).WhichOneof("kind") not in _NO_KEY]
        updates = [{"key": at, **side} for at, side in enumerate(sides)]
        updates += [{"key": [key], "after": {"v": key}} for key in keys]
        await self._do_commit(1, {"updates": updates})
        await self._do_expect("ack", {"marker": 1})

    async def _do_chunk_end(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Send ChunkEnd of table ``t``, whose key has the type ``of``."""
        schema = Schema("t", (Column("id", step.get("of", "int")),), ())
        await self._teach(self._stream(step), [schema])
        await self._send("chunk_end", {"schema": str(schema.id), **given}, step)

    async def _do_raw(self, data: str, step: Mapping[str, Any]) -> None:
        """Send a message of these bytes, in hexadecimal."""
        await self._stream(step).call.send(bytes.fromhex(data))

    async def _do_recorded(self, messages: Sequence[str], step: Mapping[str, Any]) -> None:
        """Send the messages that a publisher of an earlier release sent, byte by byte."""
        stream = self._stream(step)
        for data in map(base64.b64decode, messages):
            frames = push_pb2.PublisherMessage.FromString(data).frames
            for frame in frames:
                self.ledger.sent(stream.number, frame)
            await stream.call.send(data)
            for kind, field in (("hello", "welcome"), ("assign", "accepted")):
                if any(frame.WhichOneof("kind") == kind for frame in frames):
                    await self._do_expect(field, {})
        offered = [delivery.markers[-1][0] for delivery in self.ledger.deliveries.values()]
        await self._do_expect("ack", {"marker": MessageToDict(offered[-1], preserving_proto_field_name=True)})

    async def _do_cut(self, given: object, step: Mapping[str, Any]) -> None:
        """Break the stream from the publisher's side."""
        self._stream(step).call.cut()

    # --- steps that expect

    async def _do_expect(self, kind: str, step: Mapping[str, Any]) -> None:
        """Expect the next frame of a flow, or of the stream, with these fields."""
        stream = self._stream(step)
        fields = {name: value for name, value in step.items() if name not in _OWN_FIELDS}
        if kind in {"heartbeat", "progress"}:
            await self._expect_tracked(kind, stream, fields)
            return
        flow = fields.pop("flow", 0 if kind in {"welcome", "goodbye"} else 1)
        frames = stream.frames[flow]
        says, absent = fields.pop("says", ""), fields.pop("absent", [])
        await self._until(lambda: frames, f"no {kind} came")
        frame = frames.popleft()
        while frame.WhichOneof("kind") == "ack" and (kind != "ack" or frame.ack.marker != marker_of(fields["marker"])):
            # Earlier datamarkers may be acknowledged one by one or together. The ledger has checked these frames.
            await self._until(lambda: frames, f"no {kind} came after ack")
            frame = frames.popleft()
        if frame.WhichOneof("kind") != kind:
            raise Breach(f"{kind} was expected, and this came: {frame}".replace("\n", " "))
        found = getattr(frame, kind)
        for name, value in fields.items():
            wanted = getattr(filled(type(found)(), {name: value}), name)
            message = found.DESCRIPTOR.fields_by_name[name].message_type
            if getattr(found, name) != wanted or (message and not found.HasField(name)):
                raise Breach(f"{kind}.{name} is {getattr(found, name)!r}, expected {wanted!r}")
        if lacking := [name for name in absent if found.HasField(name)]:
            raise Breach(f"{kind} has {lacking}: {found}".replace("\n", " "))
        message = found.message.lower().replace("_", "") if says else ""
        if not all(word in message for word in says.lower().replace("_", "").split()):
            raise Breach(f"{kind}.message does not name {says!r}: {found.message}")

    async def _expect_tracked(self, kind: str, stream: _Stream, fields: dict[str, Any]) -> None:
        if kind == "heartbeat":
            least = stream.beats + fields.get("count", 1)
            await self._until(lambda: stream.beats >= least, "no heartbeat came")
            return
        flow = fields.get("flow", 1)
        at = (flow, fields.get("epoch", stream.epochs[flow]))
        await self._until(lambda: stream.progress[at] >= fields["number"], f"no progress up to {fields['number']} came")

    async def _do_reported(self, figures: Mapping[str, int], step: Mapping[str, Any]) -> None:
        """Expect these figures about callbacks in the last report of the flow."""
        reports = self._stream(step).reports

        def holds() -> bool:
            return 1 in reports and all(getattr(reports[1], name) == value for name, value in figures.items())

        await self._until(holds, lambda: f"this was reported: {reports.get(1)}".replace("\n", " "))

    async def _do_counted(self, updates: int, step: Mapping[str, Any]) -> None:
        """Expect that the client counted this many updates of the flow for the audit, without rolled back ones."""
        counts = self._stream(step).counts[1]
        await self._until(
            lambda: sum(one.updates + one.set_aside - one.in_vain for one in counts.values()) == updates,
            lambda: f"this was counted: {[*counts.values()]}".replace("\n", " "),
        )

    async def _do_verified(self, figures: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Expect exactly these fields in all frames ``Verified`` of flow 1 so far, joined. They came before the last
        ack that was expected.
        """
        expected, found = verified_of(figures), self._stream(step).verified[1]
        if found != expected:
            raise Breach(f"this was found: {found}, expected {expected}".replace("\n", " "))

    async def _do_resend(self, steps: Sequence[Any], step: Mapping[str, Any]) -> None:
        """Run these steps if the client sent Failed(RESEND) in place of an answer, because it dropped the updates."""
        frames = self._stream(step).frames[1]
        await self._until(lambda: frames, "neither an answer nor Failed(RESEND) came")
        if frames[0].WhichOneof("kind") == "failed":
            await self._do_expect("failed", {"reason": "RESEND"})
            await self._all(steps)

    async def _do_silent(self, flow: int, step: Mapping[str, Any]) -> None:
        """Expect no frame of this flow, except progress up to batch ``progress``."""
        self._check()
        stream = self._stream(step)
        progress = stream.progress[flow, stream.epochs[flow]]
        if stream.frames[flow] or progress > step.get("progress", 0):
            raise Breach(f"sent too early: {[*stream.frames[flow]] or f'progress {progress}'}".replace("\\n", " "))

    async def _do_breach(self, says: str, step: Mapping[str, Any]) -> None:
        """Expect that the client ends the stream with Goodbye(PROTOCOL), and that its message names ``says``."""
        await self._do_expect("goodbye", {**step, "reason": "PROTOCOL", "says": says})
        await self._do_ended({}, step)

    async def _do_ended(self, given: object, step: Mapping[str, Any]) -> None:
        """Expect that the client ends the stream."""
        stream = self._stream(step)
        await self._until(lambda: stream.call.ended, "it did not end the stream")
        waited_ms = 1000 * (asyncio.get_running_loop().time() - stream.sent_at)
        if waited_ms < step.get("not_before_ms", 0):
            raise Breach(f"it ended the stream after {waited_ms:.0f} ms")

    async def _do_unattached(self, at: str, step: Mapping[str, Any]) -> None:
        """Expect no stream at this address."""
        if self._arrived[at]:
            raise Breach("it named itself to a publisher with another name in its certificate")

    async def _do_printed(self, event: str, step: Mapping[str, Any]) -> None:
        """Expect a line with this event and these fields, after the last line that was expected."""

        def found() -> bool:
            for number in range(self._read, len(self._lines)):
                line = self._lines[number]
                if line["event"] == event and all(line.get(name) == value for name, value in step.items()):
                    self._read = number + 1
                    return True
            return False

        await self._until(found, f"{event} {dict(step)} was not printed")

    async def _do_resume(self, given: object, step: Mapping[str, Any]) -> None:
        """Let the handlers that hang return."""
        self.ledger.resumed()
        await self._client.say({"resume": True})

    async def _do_exited(self, code: int, step: Mapping[str, Any]) -> None:
        """Expect that the client's process ends with this code."""
        self._stopped = True
        await self._do_printed("exit", {"code": code})
        for delivery in self.ledger.deliveries.values():
            delivery.assigned = False  # the process that would print the revocation has ended

    async def _do_leave(self, given: object, step: Mapping[str, Any]) -> None:
        """Ask the client to stop gracefully."""
        self._leaving = [s for s in self._streams.values() if s.said and s.goodbye is None and not s.call.over_now]
        await self._client.say({"stop": True})

    async def _do_stop(self, given: object, step: Mapping[str, Any]) -> None:
        """Stop the client gracefully. Expect Released for each flow, Goodbye on each open stream, and the last line."""
        self._stopped = True
        if self._leaving is None:
            await self._do_leave({}, {})
        leaves = self._leaving or []
        await self._do_printed("end", {})
        for stream in leaves:
            await self._until(partial(_left, stream), "no goodbye came")
            if stream.goodbye is None or stream.goodbye.reason != push_pb2.Goodbye.LEAVING:
                raise Breach(f"Goodbye(LEAVING) was expected, and this came: {stream.goodbye}")
            if unreleased := self.ledger.unreleased(stream.number):
                raise Breach(f"no Released of flows {unreleased} before Goodbye")
        for stream in self._streams.values():
            for queue in stream.frames.values():
                left = [frame for frame in queue if frame.WhichOneof("kind") not in {"released", "goodbye", "ack"}]
                if left:
                    raise Breach(f"not expected by the case: {left}".replace("\n", " "))


def _left(stream: _Stream) -> bool:
    return stream.goodbye is not None or stream.call.ended


def _own(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in _OWN_FIELDS if name in step}


def _certificates(case: Mapping[str, Any], given: dict[str, Any], folder: Path) -> dict[str, grpc.ServerCredentials]:
    """The credentials of both publishers. The client's TLS files are added to ``given``, without a certificate if the
    client has a token."""
    authority, certified = Authority(folder), "token" not in given
    own = authority.issue(given["id"])
    files = {"cert": own.cert, "key": own.key, "ca": own.ca} if certified else {"ca": own.ca}
    given["tls"] = {**{name: str(path) for name, path in files.items()}, "publisher": _PUBLISHER}
    names = {"dial": case.get("certificate", _PUBLISHER), "second": _PUBLISHER}
    return {at: Trust(authority.issue(name)).server_credentials(demand=certified) for at, name in names.items()}


async def perform(
    case: Mapping[str, Any], client: ClientProcess, folder: Path, *, patience: float, start: float
) -> str:
    """Run a case. Returns the fault of the client; empty: the case passed. ``folder``: the folder for certificates.

    ``patience``: seconds to wait for an expected frame or line; ``start``: seconds to wait for a process to start.
    """
    performance = Performance(case, client, patience, start)
    given = performance.given
    async with AsyncExitStack() as stack:
        credentials = await asyncio.to_thread(_certificates, case, given, folder) if "tls" in given else {}
        for at in ("dial", "second") if case.get("two") else ("dial",):
            take = performance.take(at)
            given[at] = await stack.enter_async_context(stage(take, credentials.get(at), case.get("refuses")))
        try:
            await performance.run()
        except Breach as breach:
            await client.close(kill=True)
            return str(breach)
    return ""
