"""Promise 4: a subscriber that is frozen, dead or breaks the protocol delays no other application.

Also: which processes keep running when something around them fails."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import grpc
import pytest

from tests.support.eventually import PATIENCE_S
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.logs import Assigned, Loss, Marker, Received
from wormhole.host.ready_file import read_ready, ready_path
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2

Running = Callable[[Plan], AbstractContextManager[Ensemble]]


def two(bad: str, settings: dict[str, Any] | None = None, **plan: Any) -> Plan:
    """An application that behaves, and one named ``bad``."""
    applications = {"good": Application({"good-1": {}}), bad: Application({f"{bad}-1": settings})}
    return Plan(applications, zookeeper=False, **plan)


def committing(ensemble: Ensemble, seconds: float) -> None:
    """A live writer for a while."""
    ensemble.tell("go")
    time.sleep(seconds)
    ensemble.tell("pause")


# --- subscribers -----------------------------------------------------------------------------------------------------


def test_a_frozen_subscriber_delays_no_other_application(running: Running) -> None:
    with running(two("frozen", {})) as ensemble:
        committing(ensemble, 0.3)
        ensemble.await_all()
        frozen = ensemble.members["frozen-1"]
        frozen.signal(signal.SIGSTOP)
        ensemble.tell("fill 4000 8192")  # more than the frozen one's credit, socket and gRPC buffers hold
        committing(ensemble, 1.0)
        ensemble.await_all(["good"])
        missing = sum(ensemble.checkers["frozen"].behind().values())
        assert missing > 3000, "it was frozen, yet it received"
        frozen.signal(signal.SIGCONT)
        ensemble.await_all()
        ensemble.check_state()


def accepted(request: bytes) -> list[push_pb2.SubscriberFrame]:
    """The right answers to the first frames, of a subscriber that behaves at first."""
    answers = []
    for frame in push_pb2.PublisherMessage.FromString(request).frames:
        match frame.WhichOneof("kind"):
            case "hello":
                welcome = push_pb2.Welcome(
                    version=3, application=frame.hello.application, subscriber=frame.hello.subscriber
                )
                answers.append(push_pb2.SubscriberFrame(welcome=welcome))
            case "assign":
                assign = frame.assign
                taken = push_pb2.Accepted(flow=assign.flow, epoch=assign.epoch, credit=1 << 20)
                answers.append(push_pb2.SubscriberFrame(accepted=taken))
    return answers


def message(frames: list[push_pb2.SubscriberFrame]) -> bytes:
    return push_pb2.SubscriberMessage(frames=frames).SerializeToString()


def ahead(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """Acknowledges what was never offered: storing that would lose everything before it."""
    for request in requests:
        answers = accepted(request)
        yield message(answers)
        for answer in answers:
            if answer.WhichOneof("kind") == "accepted":
                place = LogPosition(1, 1 << 40, 0)
                marker = marker_to_message(Datamarker(place, "999999", place))
                ack = push_pb2.Ack(flow=answer.accepted.flow, epoch=answer.accepted.epoch, marker=marker)
                yield message([push_pb2.SubscriberFrame(ack=ack)])


def stops_reading(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    opened = False
    for request in requests:
        answers = accepted(request)
        yield message(answers)
        opened = opened or any(answer.WhichOneof("kind") == "accepted" for answer in answers)
        if opened:
            break
    while context.is_active():
        yield message([push_pb2.SubscriberFrame(heartbeat=push_pb2.Heartbeat())])
        time.sleep(0.2)


def hangs_up(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    yield message(accepted(next(requests)))
    context.abort(grpc.StatusCode.INTERNAL, "no mood")


@contextmanager
def playing(
    address: str, behaviour: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]
) -> Iterator[None]:
    """A subscriber of our own making at the address."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    handler: Any = grpc.stream_stream_rpc_method_handler(behaviour)
    generic = grpc.method_handlers_generic_handler("wormhole.wire.v1.Subscriber", {"Push": handler})
    server.add_generic_rpc_handlers((generic,))
    assert server.add_insecure_port(address)
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


BEHAVIOURS: Final = {
    ahead: "was never offered the marker",
    stops_reading: "",
    hangs_up: "no mood",
}
"""What each does, and what the publisher says of it."""


def test_subscribers_that_break_the_protocol_delay_no_other_application(
    running: Running,
) -> None:
    mad = {f"mad{number}": behaviour for number, behaviour in enumerate(BEHAVIOURS)}
    applications = {"good": Application({"good-1": {}})} | {name: Application({f"{name}-1": None}) for name in mad}
    with running(Plan(applications, zookeeper=False)) as ensemble, ExitStack() as stack:
        for name, behaviour in mad.items():
            stack.enter_context(playing(f"127.0.0.1:{ensemble.ports[f'{name}-1']}", behaviour))
        committing(ensemble, 1.5)
        ensemble.await_all(["good"])
        told = ensemble.publisher.output
        for said in BEHAVIOURS.values():
            ensemble.await_true(lambda said=said: said in told.read_text(), f"the publisher does not say {said!r}")  # type: ignore[misc]
        assert "Traceback" not in told.read_text(), told.read_text()
        ensemble.tell("fill 2000 8192")
        ensemble.await_all(["good"])
        stack.close()
        # No datamarker has passed what was not delivered.
        following = f"mad{list(BEHAVIOURS).index(ahead)}"
        ensemble.add(f"{following}-1", following, {})
        ensemble.await_all(["good", following])


def test_an_unknown_application_is_named_with_the_setting_that_is_missing(running: Running) -> None:
    with running(Plan({"good": Application({"good-1": {}})})) as ensemble:
        ensemble.add("stranger-1", "stranger", {})
        stranger = ensemble.members.pop("stranger-1")
        assert stranger.wait() != 0
        said = stranger.output.read_text()
        assert "no application 'stranger' is configured" in said
        assert "[applications.stranger]" in said
        committing(ensemble, 0.3)
        ensemble.await_all()


# --- the publisher ---------------------------------------------------------------------------------------------------


# --- ZooKeeper -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", pytest.param("suspended", marks=pytest.mark.soak)])
def test_without_zookeeper_existing_streams_go_on_with_local_markers(running: Running, how: str) -> None:
    # A stream that broke because the machine stood still could not be replaced now.
    with running(Plan({"good": Application({"good-1": {}})}, heartbeat="5s")) as ensemble:
        assert ensemble.zookeeper is not None
        committing(ensemble, 0.3)
        ensemble.await_all()
        take_away(ensemble, how)
        time.sleep(3.0)  # longer than the session and than any lease
        committing(ensemble, 0.5)
        ensemble.await_all()
        bring_back(ensemble, how)
        committing(ensemble, 0.5)
        ensemble.await_all()


@pytest.mark.parametrize("how", [pytest.param("killed", marks=pytest.mark.soak), "suspended"])
def test_without_zookeeper_sending_stops_at_the_lease_s_end_with_markers_there(running: Running, how: str) -> None:
    """Another publisher may own the flows by then."""
    plan = Plan({"good": Application({"good-1": {}})}, markers="zookeeper", session_timeout="4s")
    with running(plan) as ensemble:
        ensemble.tell("go")
        ensemble.await_all()
        take_away(ensemble, how)
        ensemble.await_true(lambda: "beyond the lease" in readiness(ensemble), "the publisher does not report it")
        last = int(ensemble.tell("sequence"))
        committing(ensemble, 1.0)
        assert max(sequences(ensemble, "good-1")) <= last, "updates were sent without a lease"
        bring_back(ensemble, how)
        ensemble.await_all()
        ensemble.check_state()


def readiness(ensemble: Ensemble) -> str:
    """What the publisher answers to ``/readyz``."""
    ready = read_ready(ready_path(ensemble.folder / "state", "shop", "main", "db1"))
    assert ready is not None
    try:
        with urllib.request.urlopen(f"http://{ready.http}/readyz", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def take_away(ensemble: Ensemble, how: str) -> None:
    assert ensemble.zookeeper is not None
    if how == "killed":
        ensemble.zookeeper.kill()
    else:
        signal_process(ensemble.zookeeper.pid, signal.SIGSTOP)


def bring_back(ensemble: Ensemble, how: str) -> None:
    assert ensemble.zookeeper is not None
    if how == "killed":
        ensemble.zookeeper.start()
    else:
        signal_process(ensemble.zookeeper.pid, signal.SIGCONT)


def signal_process(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


# --- the log ---------------------------------------------------------------------------------------------------------


def sequences(ensemble: Ensemble, name: str) -> list[int]:
    return [entry.sequence for entry in ensemble.entries(name) if isinstance(entry, Received)]


def marked(ensemble: Ensemble, name: str) -> int:
    """Up to where the subscriber was given a datamarker."""
    return max((entry.delivered for entry in ensemble.entries(name) if isinstance(entry, Marker)), default=0)


def losses(ensemble: Ensemble, name: str) -> list[tuple[str, str, str, str]]:
    return [(e.kind, e.first, e.last, e.decision) for e in ensemble.entries(name) if isinstance(e, Loss)]


def test_a_purged_log_is_reported_with_its_exact_range_and_passed_only_by_decision(running: Running) -> None:
    with running(two("brave", {"loss": "continue"}, tables=())) as ensemble:
        ensemble.tell("fill 100 100")
        ensemble.await_all()
        assert ensemble.publisher.stop() == 0
        ensemble.tell("fill 50 100")  # 101-150 go to a file that was pinned while the publisher ran
        ensemble.tell("flush")
        ensemble.tell("fill 50 100")  # 151-200: the file that holds them is deleted
        ensemble.tell("flush")
        ensemble.tell("fill 30 100")  # 201-230 stay
        ensemble.publisher.start()
        ensemble.await_true(lambda: sequences(ensemble, "brave-1")[-1] == 230, "the brave one does not go on")
        assert losses(ensemble, "brave-1") == [("purged", "151", "200", "continue")]
        assert sorted(set(sequences(ensemble, "brave-1"))) == [*range(1, 151), *range(201, 231)]
        # The other one halts: nothing comes, and no marker passes the gap, also over a restart.
        halted = ("purged", "151", "200", "halt")
        ensemble.await_true(lambda: losses(ensemble, "good-1") == [halted], "the good one is not told")
        ensemble.tell("fill 10 100")
        ensemble.await_true(lambda: sequences(ensemble, "brave-1")[-1] == 240, "the brave one does not go on")
        assert ensemble.publisher.stop() == 0
        ensemble.publisher.start()
        ensemble.await_true(lambda: losses(ensemble, "good-1") == [halted] * 2, "the good one is not told again")
        assert sequences(ensemble, "good-1")[-1] == 150
        assert all(
            entry.delivered <= 150 for entry in ensemble.entries("good-1") if isinstance(entry, (Marker, Assigned))
        )
        # The application decides.
        ensemble.members["good-1"].kill()
        ensemble.start_subscriber("good-1", loss="continue")
        ensemble.await_true(lambda: sequences(ensemble, "good-1")[-1] == 240, "the good one does not go on")
        assert [n for n in sequences(ensemble, "good-1") if n > 150] == list(range(201, 241))
