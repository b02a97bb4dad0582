"""A process that plays a malicious subscriber: ``python -m tests.hostile.mad_subscriber ADDRESS``.

It reads commands from its input, one in each line. ``behave``: it sends heartbeats only, as at first.
``attack NAME...``: each connection begins the next of these attacks. ``state``: it prints a line of JSON with the
number of connections it ``attacked``, the ``bytes`` that gRPC took of it for that, and the seconds for which it is
``behaving``.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tests.hostile.costly_frames import KINDS, costly
from tests.support.letters import letter
from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.v1 import push_pb2

Frame = push_pb2.SubscriberFrame
Flows = dict[str, push_pb2.Assign]


def message(*frames: push_pb2.SubscriberFrame) -> bytes:
    return push_pb2.SubscriberMessage(frames=frames).SerializeToString()


def windows(flows: Flows) -> Iterator[bytes]:
    """100,000 windows in 0.9 MB, which is a legal frame of the protocol as it was."""
    told = [push_pb2.Processed(window=i, updates=1) for i in range(100_000)]
    assign = next(iter(flows.values()))
    data = message(Frame(progress=push_pb2.Progress(flow=assign.flow, epoch=assign.epoch, processed=told)))
    while True:
        yield data


def unfinished(flows: Flows) -> Iterator[bytes]:
    """Parts of each flow's update, as many as one update may have, and never its end."""
    told, _ = letter(5)
    for _ in range(38):
        for assign in flows.values():
            park = push_pb2.Park(
                flow=assign.flow, epoch=assign.epoch, update_id=told.id, body=bytes(4_000_000), more=True
            )
            yield message(Frame(park=park))
    while True:
        yield message(Frame(heartbeat=push_pb2.Heartbeat()))
        time.sleep(0.1)


def reports(flows: Flows) -> Iterator[bytes]:
    """As much as a message holds, kept for operators."""
    while True:
        for assign in flows.values():
            handler = push_pb2.HandlerReport(slowest_table="x" * 1_500_000, running_update="y" * 1_500_000)
            yield message(Frame(report=push_pb2.Report(flow=assign.flow, epoch=assign.epoch, handler=handler)))


def tiny(flows: Flows) -> Iterator[bytes]:
    """As many frames as a message holds, all of them legal."""
    data = message(*[Frame(heartbeat=push_pb2.Heartbeat())] * 60_000)
    while True:
        yield data


def resend(flows: Flows) -> Iterator[bytes]:
    """Gives every flow back as soon as it has it: each time costs an epoch, which is stored."""
    while True:
        for name in list(flows):
            assign = flows.pop(name)
            failed = push_pb2.Failed(flow=assign.flow, epoch=assign.epoch, reason=push_pb2.Failed.RESEND)
            yield message(Frame(failed=failed))
        yield message(Frame(heartbeat=push_pb2.Heartbeat()))
        time.sleep(0.005)


ATTACKS: dict[str, Callable[[Flows], Iterator[bytes]]] = {
    attack.__name__: attack for attack in (windows, unfinished, reports, tiny, resend)
}
COSTLY = {f"costly-{kind}": [kind] for kind in KINDS} | {"costly": list(KINDS)}
"""What the protocol permits, by the name of the attack; drawn by :mod:`tests.hostile.costly_frames`."""


class Mad:
    """What it is told to do, and what it did."""

    def __init__(self) -> None:
        self.order = 0  # raised by each command: a connection is for one
        self.names: Iterator[str] | None = None
        self.attacked = 0
        self.bytes = 0
        self.behaves_since = 0.0
        self.batches: dict[str, tuple[Schema, bytes]] = {}  # one of each shard, and the schema of its updates

    def attack(self, name: str, flows: Flows) -> Iterator[bytes]:
        if name in ATTACKS:
            yield from ATTACKS[name](flows)
        for frames in costly(self.attacked, COSTLY.get(name, []), flows, self.batches):
            yield message(*frames)
            while not self.batches.keys() & flows.keys():
                yield message(Frame(heartbeat=push_pb2.Heartbeat()))
                time.sleep(0.05)

    def told(self, command: str) -> None:
        what, *names = command.split()
        if what == "state":
            behaving = time.monotonic() - self.behaves_since if self.behaves_since else 0.0
            state = {"attacked": self.attacked, "bytes": self.bytes, "behaving": behaving}
            print(json.dumps(state), flush=True)
        else:
            self.names = itertools.cycle(names) if what == "attack" else None
            self.behaves_since = 0.0
            self.attacked = self.bytes = 0
            self.order += 1

    def frames(self, flows: Flows) -> Iterator[bytes]:
        """What it sends once a flow is open."""
        if self.names is not None:
            self.attacked += 1
            for data in self.attack(next(self.names), flows):
                yield data
                self.bytes += len(data)
        self.behaves_since = time.monotonic()
        while True:
            yield message(Frame(heartbeat=push_pb2.Heartbeat()))
            time.sleep(0.1)

    def push(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        flows: Flows = {}
        answers: list[bytes] = []
        opened = threading.Event()
        schemas: dict[int, Schema] = {}
        order = self.order

        def read() -> None:
            for request in requests:
                for frame in push_pb2.PublisherMessage.FromString(request).frames:
                    if frame.HasField("hello"):
                        who = frame.hello
                        welcome = push_pb2.Welcome(version=3, application=who.application, subscriber=who.subscriber)
                        answers.append(message(Frame(welcome=welcome)))
                    if frame.HasField("schema"):
                        schema = Schema.from_canonical(frame.schema.canonical)
                        schemas[frame.schema.id] = schema
                    if frame.HasField("batch"):
                        shard = next((name for name, one in flows.items() if one.flow == frame.batch.flow), "")
                        body = parse_body(frame.batch.body)
                        if shard and len(body.updates):
                            self.batches[shard] = (schemas[body.schema_id_of(0)], frame.batch.body)
                    if frame.HasField("assign"):
                        one = push_pb2.Assign()
                        one.CopyFrom(frame.assign)
                        taken = push_pb2.Accepted(flow=one.flow, epoch=one.epoch, credit=1 << 20, life=1)
                        answers.append(message(Frame(accepted=taken)))
                        flows[one.shard] = one
                        opened.set()

        threading.Thread(target=read, daemon=True).start()
        while not opened.is_set() or answers:
            while answers:
                yield answers.pop(0)
            if not context.is_active() or order != self.order:
                return
            time.sleep(0.01)
        for data in self.frames(flows):
            while answers:
                yield answers.pop(0)
            if not context.is_active() or order != self.order:
                return
            yield data


def main(address: str) -> None:
    """Obey until the input ends."""
    os.nice(19)  # it stands for another host: the processor time that it takes itself is no harm of the publisher's
    mad = Mad()
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    handler: Any = grpc.stream_stream_rpc_method_handler(mad.push)
    generic = grpc.method_handlers_generic_handler("wormhole.wire.v1.Subscriber", {"Push": handler})
    server.add_generic_rpc_handlers((generic,))
    server.add_insecure_port(address)
    server.start()
    for command in sys.stdin:
        mad.told(command)


if __name__ == "__main__":
    main(*sys.argv[1:])
