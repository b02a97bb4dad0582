from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from wormhole.cli import admin_client
from wormhole.cli.admin_client import Answer, Where, ask
from wormhole.coordination import PublisherInfo
from wormhole.errors import ConfigError, Retryable, StreamBroken, UsageError
from wormhole.wire.v1 import admin_pb2

STATUS = admin_pb2.PublisherStatus(dataset="shop", copy="main", log="db1", version="0.1.0")


@pytest.fixture
def publisher() -> Iterator[str]:
    """The address of an admin service that tells `STATUS`."""
    pool = futures.ThreadPoolExecutor(1)
    server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
        lambda request, context: STATUS.SerializeToString()
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", {"Describe": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    pool.shutdown()


def info(log: str, address: str) -> PublisherInfo:
    return PublisherInfo("shop", "main", log, "host", 1, address, 0.0)


def knows(monkeypatch: pytest.MonkeyPatch, *infos: PublisherInfo) -> Where:
    async def find(where: Where) -> tuple[PublisherInfo, ...]:
        return infos

    monkeypatch.setattr(admin_client, "find", find)
    return Where(coordinator="zk:2181")


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


def test_nobody_answers() -> None:
    with pytest.raises(StreamBroken, match=r"does not answer.*admin_listen"):
        ask(Where("127.0.0.1:1"))


@pytest.mark.parametrize(
    ("infos", "problem"), [((), "no publisher is registered"), ((info("db1", ""),), "no admin service")]
)
def test_nobody_to_ask(infos: tuple[PublisherInfo, ...], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Retryable, match=problem):
        ask(knows(monkeypatch, *infos))


def test_nothing_says_where() -> None:
    with pytest.raises(UsageError, match="--publisher HOST:PORT"):
        ask(Where())


def test_a_coordinator_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a configuration file nor a ZooKeeper"):
        ask(Where(coordinator="what is this"))
    with pytest.raises(ConfigError, match="no such configuration file"):
        ask(Where(coordinator=str(tmp_path / "no.toml")))


def static(folder: Path, listen: str) -> Where:
    path = folder / "shop.toml"
    path.write_text(f'version = 1\n[coordinator]\nstatic = true\n[publisher]\nadmin_listen = "{listen}"\n')
    return Where(coordinator=str(path))


def test_in_the_static_form_the_file_says_where_the_publisher_listens(publisher: str, tmp_path: Path) -> None:
    assert ask(static(tmp_path, publisher)) == [Answer(publisher, STATUS)]
    with pytest.raises(UsageError, match=r"choose a port.*admin_listen"):
        ask(static(tmp_path, "127.0.0.1:0"))
