"""The publisher's side of a replay as a test wants it, over real gRPC; and a subscriber that takes whatever comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc

from tests.support.eventually import patience
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.push.refusal import refusal_metadata
from wormhole.wire.markers import marker_from_message, marker_to_message
from wormhole.wire.problems import problem_to_message
from wormhole.wire.update import Update
from wormhole.wire.v1 import admin_pb2, push_pb2


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the test
    """What the publisher answers instead."""

    def __init__(self, code: grpc.StatusCode, message: str, hint: str | None = None) -> None:
        self.code, self.hint = code, hint
        self.text = message if hint is None else f"{message}. Next: {hint}"


class ScriptedReplay:
    """One flow. ``state_after``: once it was cancelled. ``address``: of its subscriber; ``marker``, ``progress``: as
    stored; ``refuses``: verb to what it answers, once each; ``loses``: verbs that are carried out once without an
    answer. ``causes``: what is answered to `open` instead, once each, while it is ``paused``, if it is. ``rewound``:
    the marker was set back, and is until the first one is stored. ``tells``: of the rate, as earlier releases do not;
    ``rate``: as the driver granted it last, ``told``: to a task. ``started_s``: of the replay that has the flow,
    ``has``: its id, if not the one that is asked about. ``before``: what is done first, by verb; ``after``: what is
    done with each reply."""

    def __init__(self, marker: Datamarker, flow: str = "cache/a") -> None:
        self.flow, self.marker, self.progress = flow, marker, b""
        self.subscriber, self.filter = "s1", ""
        self.projection: admin_pb2.Projection | None = None
        self.reach = self.address = ""
        self.epoch = 0
        self.opener = ""
        self.loses: set[str] = set()
        self.causes: list[Problem] = []
        self.paused = ""
        self.rewound = False
        self.updates = 0
        self.tells, self.rate, self.told = True, 0.0, 0.0
        self.started_s, self.has = 0.0, ""
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.refuses: dict[str, list[Refused]] = {}
        self.before: dict[str, Callable[[admin_pb2.ReplayRequest], object]] = {}
        self.after: Callable[[admin_pb2.ReplayRequest, admin_pb2.ReplayReply], object] = lambda request, reply: None
        self.purged: list[admin_pb2.PurgedLog] = []
        self.state, self.state_after = "replaying", "needs_replay"
        self.finished: list[int] = []
        """In which epochs it was to be handed over."""
        self.begun: list[Datamarker] = []
        """Where it was asked to set its datamarker back to."""

    def answer(self, request: admin_pb2.ReplayRequest) -> admin_pb2.ReplayReply:
        verb = str(request.WhichOneof("what"))
        if verb in self.before:
            self.before[verb](request)
        self.asked.append(verb)
        if verb == "finish":
            self.finished.append(request.finish.epoch)
        if self.refuses.get(verb):
            raise self.refuses[verb].pop(0)
        opened = None
        match verb:
            case "begin" if request.begin.HasField("begin"):
                self.begun.append(marker_from_message(request.begin.begin))
            case "renew" if request.renew.HasField("rate"):
                self.rate = request.renew.rate
            case "open" if self.causes:
                status = admin_pb2.FlowStatus(flow=self.flow, paused=self.paused)
                return admin_pb2.ReplayReply(flow=status, problem=problem_to_message(self.causes.pop(0)))
            case "open":
                self.epoch = max(self.epoch, request.open.above) + 1
                self.opener = request.open.opener
                opened = admin_pb2.OpenedReplay(
                    epoch=self.epoch,
                    subscriber=self.subscriber,
                    address=self.address,
                    marker=marker_to_message(self.marker),
                    progress=self.progress,
                    filter=self.filter,
                    projection=self.projection,
                    publisher="p",
                    rewound=self.rewound,
                )
            case "advance":
                if request.advance.HasField("marker"):
                    self.marker = marker_from_message(request.advance.marker)
                    self.rewound = False
                self.progress = request.advance.progress or self.progress
                self.updates += request.advance.updates
            case "cancel":
                self.state = self.state_after
        if verb in self.loses:
            self.loses.remove(verb)
            raise Refused(grpc.StatusCode.UNAVAILABLE, "it went down")
        purged = self.purged.pop(0) if verb == "finish" and self.purged else None
        status = admin_pb2.FlowStatus(flow=self.flow, state=self.state, marker=marker_to_message(self.marker))
        replay = admin_pb2.ReplayStatus(
            replay=self.has or request.replay,
            attempts=self.epoch,
            updates=self.updates,
            opener=self.opener,
            started_s=self.started_s,
        )
        if verb in ("open", "advance"):
            self.told = self.rate
        if self.tells:
            replay.rate = self.told
        ended = verb == "finish" and (purged is None or request.finish.accept_gap)
        reply = admin_pb2.ReplayReply(
            flow=status, replay=None if ended else replay, ticket="t", opened=opened, purged=purged
        )
        self.after(request, reply)
        return reply


@contextmanager
def replay_publisher(
    script: ScriptedReplay, credentials: grpc.ServerCredentials | None = None, target: str = ""
) -> Iterator[ScriptedReplay]:
    """Serve it; ``script.reach`` is where, and ``target``, if given, too. ``credentials``: for TLS."""

    def serve(request: bytes, context: Any) -> bytes:
        script.tokens += [str(value) for name, value in context.invocation_metadata() if name == "authorization"]
        try:
            return script.answer(admin_pb2.ReplayRequest.FromString(request)).SerializeToString()
        except Refused as refused:
            context.set_trailing_metadata(refusal_metadata(refused.hint))
            context.abort(refused.code, refused.text)
            raise AssertionError("abort raises") from None

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        handlers: Any = {"Replay": grpc.unary_unary_rpc_method_handler(serve)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", handlers),))
        address = "127.0.0.1:0"
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        script.reach = f"127.0.0.1:{port}"
        if target:
            server.add_insecure_port(target)
        server.start()
        try:
            yield script
        finally:
            server.stop(0).wait()


@asynccontextmanager
async def pushed(marker: Datamarker) -> AsyncIterator[tuple[ScriptedSubscriber, ScriptedReplay]]:
    """A subscriber, and the publisher of its flow, which stands at ``marker``."""
    async with scripted_subscriber("cache", "s1") as subscriber:
        with replay_publisher(ScriptedReplay(marker)) as script:
            script.address = subscriber.address
            yield subscriber, script


async def takes_all(
    subscriber: ScriptedSubscriber,
    *,
    hangs_up_after: int = 0,
    have: Datamarker | None = None,
    see: Callable[[push_pb2.PublisherFrame], None] | None = None,
) -> list[Update]:
    """Accept a flow, process and acknowledge everything, let go when asked to; or hang up after so many batches.
    What came. ``have``: the datamarker that it keeps itself."""
    taken: list[Update] = []
    await subscriber.hears("hello")
    flow = await subscriber.accepts(await subscriber.hears("assign"), have=have)
    batches = 0
    async with patience():
        while True:
            frame = await subscriber._received.get()
            if see is not None:
                see(frame)
            match frame.WhichOneof("kind"):
                case "batch":
                    taken += subscriber.updates(frame)
                    await subscriber.processed(frame)
                    batches += 1
                    if batches == hangs_up_after:
                        subscriber.hang_up()
                        return taken
                case "datamarker":
                    await subscriber.acks(frame)
                case "revoke":
                    await subscriber.releases(flow)
                    return taken
