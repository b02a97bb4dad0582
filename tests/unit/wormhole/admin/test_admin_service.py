from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from tests.support.state_folders import local_admin
from tests.unit.wormhole.admin.test_discovery import info, knows
from wormhole.admin.admin_service import Answer, ask, change, dead_letters, nearest, owner_of
from wormhole.host.local_admin import token_path
from wormhole.model.errors import Fatal, StreamBroken, UsageError, WormholeError
from wormhole.model.problem import Problem
from wormhole.push.refusal import refusal_metadata
from wormhole.wire.v1 import admin_pb2
from wormholectl.shared.options import Where

STATUS = admin_pb2.PublisherStatus(dataset="shop", copy="main", log="db1", version="0.1.0")
TOKEN = "ab" * 32
Refuse = Callable[[grpc.ServicerContext], None]


class Service:
    """An admin service that tells `STATUS`, does every change, and can be told to refuse."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.refuse: Refuse = lambda context: None

    def method(self, name: str, reply: bytes) -> grpc.RpcMethodHandler[bytes, bytes]:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.seen.append((name, {key: str(value) for key, value in context.invocation_metadata()}, request))
            if name != "Describe":
                self.refuse(context)
            return reply

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def publisher(service: Service, tmp_path: Path) -> Iterator[str]:
    """The address of that service, which listens in a state folder below ``tmp_path``, too."""
    pool = futures.ThreadPoolExecutor(1)
    server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
    after = admin_pb2.ChangeReply(after=admin_pb2.FlowStatus(flow="cache/db1", paused="ann"))
    replies = {
        "Describe": STATUS.SerializeToString(),
        "Change": after.SerializeToString(),
        "DeadLetters": admin_pb2.DeadLettersReply(total=3).SerializeToString(),
    }
    handlers = {name: service.method(name, reply) for name, reply in replies.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    with local_admin(tmp_path) as (local, target):
        token_path(local.state_dir).unlink()
        server.add_insecure_port(target)
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()
    pool.shutdown()


def test_one_by_address(publisher: str) -> None:
    assert ask(Where(publisher)) == [Answer(publisher, STATUS)]


def test_all_that_the_coordinator_knows_and_which_did_not_answer(
    publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = knows(monkeypatch, info("db1", publisher), info("db2", "127.0.0.1:1"), info("db3", ""))
    silent, told = sorted(ask(where), key=lambda answer: answer.status is not None)
    assert (told.address, told.status) == (publisher, STATUS)
    assert silent.status is None
    assert "the publisher at 127.0.0.1:1 does not answer: unavailable" in silent.problem


def test_no_publisher_answers() -> None:
    with pytest.raises(StreamBroken, match=r"does not answer.*admin_listen"):
        ask(Where("127.0.0.1:1"))


def with_token(address: str, folder: Path, text: str = TOKEN + "\n", pid: int = 0) -> Answer:
    file = folder / "admin.token"
    file.write_text(text)
    file.chmod(0o600)
    status = admin_pb2.PublisherStatus(pid=pid)
    status.MergeFrom(STATUS)
    return Answer(address, status, state_dir=folder)


PAUSE = admin_pb2.ChangeRequest(who="ann@h", flow="cache/db1", pause=admin_pb2.Pause())


def test_a_change_carries_the_token_of_the_host(publisher: str, service: Service, tmp_path: Path) -> None:
    reply = change(with_token(publisher, tmp_path), PAUSE)
    assert reply.after.paused == "ann"
    (name, metadata, request) = service.seen[-1]
    assert (name, metadata["authorization"]) == ("Change", f"Bearer {TOKEN}")
    assert admin_pb2.ChangeRequest.FromString(request) == PAUSE


def test_dead_letters_are_asked_for(publisher: str, service: Service, tmp_path: Path) -> None:
    assert dead_letters(with_token(publisher, tmp_path), "cache/db1", 7).total == 3
    assert admin_pb2.DeadLettersRequest.FromString(service.seen[-1][2]).limit == 7


def changes(service: Service) -> list[str]:
    return [name for name, *_ in service.seen if name != "Describe"]


def test_no_token_no_question(publisher: str, service: Service, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"admin\.token .*No such file.*\[not-permitted\]"):
        change(Answer(publisher, STATUS, state_dir=tmp_path), PAUSE)
    assert changes(service) == []


def test_nothing_but_a_token_is_ever_sent(publisher: str, service: Service, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no token"):
        change(with_token(publisher, tmp_path, "root:x:0:0"), PAUSE)
    with pytest.raises(UsageError, match="holds no token"):
        change(with_token(publisher, tmp_path, "ä" * 64), PAUSE)
    with pytest.raises(UsageError, match="process 0, not 7"):
        change(with_token(publisher, tmp_path, pid=7), PAUSE)
    assert changes(service) == []


def test_the_address_is_given_nothing(publisher: str, service: Service, tmp_path: Path) -> None:
    """It may be anybody's: what permits a change goes over the socket, wherever the publisher was found."""
    assert change(with_token("192.0.2.7:7401", tmp_path), PAUSE).after.paused == "ann"
    assert changes(service) == ["Change"]


OWN = {"wrong-request", "needs-operator", "publisher-silent"}
"""Codes of refusals by a publisher that sends none."""


@pytest.mark.parametrize(
    ("code", "message", "hint", "error", "says"),
    [
        (grpc.StatusCode.NOT_FOUND, "no flow x", "look", UsageError, "no flow x"),
        (grpc.StatusCode.UNAUTHENTICATED, "wrong token", None, UsageError, "wrong token"),
        (grpc.StatusCode.PERMISSION_DENIED, "not you", "ask", UsageError, "not you"),
        (grpc.StatusCode.FAILED_PRECONDITION, "not held", None, Fatal, "not held"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", None, Fatal, "release that cannot"),
        (grpc.StatusCode.UNAVAILABLE, "store away", "wait", StreamBroken, "does not answer: store away"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", None, StreamBroken, "deadline exceeded"),
    ],
)
def test_a_refusal_says_whose_move_it_is(
    code: grpc.StatusCode,
    message: str,
    hint: str | None,
    error: type[WormholeError],
    says: str,
    publisher: str,
    service: Service,
    tmp_path: Path,
) -> None:
    def refuse(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(refusal_metadata(hint, "marker-missing" if hint else ""))
        context.abort(code, str(Problem(message, hint or "", "marker-missing" if hint else "")))

    service.refuse = refuse
    with pytest.raises(error) as refused:
        change(with_token(publisher, tmp_path), PAUSE)
    assert says in refused.value.message
    assert "[" not in refused.value.message
    assert refused.value.code == "marker-missing" if hint else refused.value.code in {*OWN, "release-too-old"}
    assert refused.value.hint == hint or hint is None


def flows(*names: str) -> Answer:
    return Answer("h:1", admin_pb2.PublisherStatus(flows=[admin_pb2.FlowStatus(flow=name) for name in names]))


def test_the_publisher_that_lists_a_flow_owns_it() -> None:
    answers = [flows("cache/db1"), Answer("h:2", None, "h:2 is silent"), flows("mail/db2")]
    owner, flow = owner_of(answers, "mail/db2")
    assert (owner, flow.flow) == (answers[2], "mail/db2")
    with pytest.raises(StreamBroken, match="h:2 is silent"):
        owner_of(answers, "mail/db3")
    with pytest.raises(UsageError, match=r"no flow 'mial/db2' .*did you mean mail/db2\?"):
        owner_of([answers[0], answers[2]], "mial/db2")


def test_near_names() -> None:
    assert nearest("db1", ["cache/db1"], "flow", "cmd") == "did you mean cache/db1? `cmd` lists all"
    assert nearest("zzz", ["cache/db1"], "flow", "cmd") == "`cmd` lists all"
    assert nearest("zzz", [], "flow", "cmd") == "there is no flow yet"
