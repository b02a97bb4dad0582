"""A process that plays malicious subscribers which dial: ``python -m tests.hostile.mad_dialler ADDRESS APPLICATION``.

It reads commands from its input, one in each line. ``attack NAME``: it attacks in that way until the next command.
``behave``: it does nothing. ``state``: it prints the number of connections and calls that it ``attacked`` with.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from wormhole.push.attaching import METHOD, Attaching
from wormhole.wire.v1 import push_pb2

Frame = push_pb2.SubscriberFrame
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # with empty settings
WAVE: Final = 3000  # connections at a time


def message(*frames: push_pb2.SubscriberFrame) -> bytes:
    return push_pb2.SubscriberMessage(frames=frames).SerializeToString()


class Mad:
    """What it is told to do, and what it did. ``stopped``: the attack ends."""

    def __init__(self, address: str, application: str) -> None:
        self.address, self.application = address, application
        self.attacked = 0
        self.stopped = threading.Event()
        self._thread = threading.Thread()

    def told(self, command: str) -> None:
        what, *names = command.split()
        if what == "state":
            print(json.dumps({"attacked": self.attacked}), flush=True)
            return
        self.stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if what == "attack":
            self.stopped = threading.Event()
            self.attacked = 0
            self._thread = threading.Thread(target=self._attack, args=(ATTACKS[names[0]],), daemon=True)
            self._thread.start()

    def _attack(self, attack: Callable[[Mad], None]) -> None:
        while not self.stopped.is_set():
            attack(self)

    def connect(self, first: bytes) -> None:
        """A wave of connections that send ``first`` and nothing else, for a second."""
        host, _, port = self.address.rpartition(":")
        wave = []
        poll = select.poll()
        for _ in range(WAVE):
            if self.stopped.is_set():
                break
            one = socket.socket()
            one.settimeout(1.0)
            try:
                one.connect((host, int(port)))
                one.sendall(first)
            except OSError:
                one.close()
                continue
            wave.append(one)
            poll.register(one, select.POLLIN)
            self.attacked += 1
        self.stopped.wait(1.0)
        for one in wave:
            one.close()

    def call(self, frames: Iterator[bytes], *more: tuple[str, str], **who: str) -> None:
        """One call, to its end."""
        given: dict[str, Any] = {"application": self.application, "subscriber": "mad-1", "instance": "x", **who}
        given_metadata: Any = (*Attaching(**given).to_metadata(), *more)
        with grpc.insecure_channel(self.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            self.attacked += 1
            method: Any = channel.stream_stream(METHOD)
            call: Any = method(frames, metadata=given_metadata, timeout=30)
            with contextlib.suppress(grpc.RpcError):
                for _ in call:
                    if self.stopped.is_set():
                        break
            call.cancel()

    def until_stopped(self, *first: bytes) -> Iterator[bytes]:
        yield from first
        self.stopped.wait()


def handshakes(mad: Mad) -> None:
    """Connections that send nothing."""
    mad.connect(b"")


def prefaces(mad: Mad) -> None:
    """Connections that are established and have no call."""
    mad.connect(PREFACE)


def guessed(mad: Mad) -> None:
    """Ids and applications that do not exist."""
    name = os.urandom(6).hex()
    mad.call(mad.until_stopped(), subscriber=name, application=f"x{name}")


def twice(mad: Mad) -> None:
    """An id that is attached already, as another process."""
    with grpc.insecure_channel(mad.address) as channel:
        method: Any = channel.stream_stream(METHOD)
        first: Any = method(mad.until_stopped(), metadata=Attaching(mad.application, "mad-1", "x").to_metadata())
        while not mad.stopped.is_set():
            mad.call(mad.until_stopped(), instance=os.urandom(6).hex())
        first.cancel()


def silent(mad: Mad) -> None:
    """It sends nothing after the metadata; each time with another id."""
    mad.call(iter(()), subscriber=os.urandom(6).hex())


def metadata(mad: Mad) -> None:
    """Megabytes of metadata."""
    mad.call(iter(()), *[(f"x-{number}", "y" * 60_000) for number in range(100)])


def early(mad: Mad) -> None:
    """Many large frames before the welcome."""
    ack = message(*[Frame(progress=push_pb2.Progress(flow=1, epoch=1))] * 60_000)
    mad.call(mad.until_stopped(ack, ack, ack), subscriber=os.urandom(6).hex())


def unread(mad: Mad) -> None:
    """It takes a flow with much credit and reads nothing more."""
    who = Attaching(mad.application, "mad-1", "x")
    with grpc.insecure_channel(mad.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        answers: list[bytes] = []

        def frames() -> Iterator[bytes]:
            while not mad.stopped.wait(0.05):
                if answers:
                    yield answers.pop(0)
                yield message(Frame(heartbeat=push_pb2.Heartbeat()))

        mad.attacked += 1
        method: Any = channel.stream_stream(METHOD)
        call: Any = method(frames(), metadata=who.to_metadata())
        with contextlib.suppress(grpc.RpcError):
            for data in call:
                for frame in push_pb2.PublisherMessage.FromString(data).frames:
                    if frame.HasField("hello"):
                        welcome = push_pb2.Welcome(version=3, application=who.application, subscriber=who.subscriber)
                        answers.append(message(Frame(welcome=welcome)))
                    if frame.HasField("assign"):
                        one = frame.assign
                        taken = push_pb2.Accepted(flow=one.flow, epoch=one.epoch, credit=1 << 30, life=1)
                        answers.append(message(Frame(accepted=taken)))
                        mad.stopped.wait()
        call.cancel()


ATTACKS: dict[str, Callable[[Mad], None]] = {
    attack.__name__: attack for attack in (handshakes, prefaces, guessed, twice, silent, metadata, early, unread)
}


def main(address: str, application: str) -> None:
    """Obey until the input ends."""
    os.nice(19)  # it stands for another host
    mad = Mad(address, application)
    for command in sys.stdin:
        mad.told(command)


if __name__ == "__main__":
    main(*sys.argv[1:])
