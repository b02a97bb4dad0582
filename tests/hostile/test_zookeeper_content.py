"""An attacker who can write to ZooKeeper: its records can only choose among what the host allows, and no process that
they name is given a secret."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from kazoo.client import KazooClient

from monitor.desired_logs import desired_logs
from monitor.state import LogKey
from publisher import daemon
from tests.support.archives import put, tx, write_archive
from tests.support.command_line import run
from tests.support.eventually import PATIENCE_S
from tests.support.hostile_mysql import greeting, packets
from tests.support.rocks_writer import RocksWriter
from wormhole.admin import admin_service
from wormhole.config import Config, CoordinatorConfig, DatasetConfig, config_to_json, load, parse_json
from wormhole.coordination import config_store, nodes
from wormhole.coordination.connect import publish_config
from wormhole.coordination.port import PublisherInfo
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.host import logs
from wormhole.model.errors import ConfigError, UsageError
from wormhole.wire.v1 import admin_pb2
from wormholectl.shared.options import Where

TOKEN = "5e" * 32


class Impostor:
    """An admin service of the attacker, which names a token file and records everything that it is sent."""

    def __init__(self, token_file: Path) -> None:
        self.heard = bytearray()
        self.status = admin_pb2.PublisherStatus(
            dataset="shop", copy="main", log="db1", token_file=str(token_file), host=socket.gethostname(), pid=1
        )
        self.status.flows.add(flow="cache/db1", state="live")

    def method(self, name: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.heard += request
            for key, value in context.invocation_metadata():
                self.heard += key.encode() + (value if isinstance(value, bytes) else value.encode())
            return self.status.SerializeToString() if name == "Describe" else b""

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def listening(impostor: Impostor) -> Iterator[str]:
    pool = futures.ThreadPoolExecutor(2)
    server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
    methods = {name: impostor.method(name) for name in ("Describe", "Change", "DeadLetters", "Audit", "Replay")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    pool.shutdown()


def test_a_publisher_that_zookeeper_invents_is_given_no_token(zookeeper: str, tmp_path: Path) -> None:
    """Red before: the operator's command read the file that this impostor named, and sent what was in it."""
    file = tmp_path / "admin.token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    impostor = Impostor(file)

    async def invent(address: str) -> None:
        coordinator = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))
        await coordinator.start()
        try:
            await coordinator.register_publisher(
                PublisherInfo("shop", "main", "db1", socket.gethostname(), 1, address, 1.0)
            )
            answers = await asyncio.to_thread(admin_service.ask, Where(coordinator=zookeeper))
            owner, _ = admin_service.owner_of(answers, "cache/db1")
            pause = admin_pb2.ChangeRequest(who="maria@ops", flow="cache/db1", pause=admin_pb2.Pause())
            with pytest.raises(UsageError, match="token"):
                await asyncio.to_thread(admin_service.change, owner, pause)
            with pytest.raises(UsageError, match="token"):
                await asyncio.to_thread(admin_service.dead_letters, owner, "", 1)
            with pytest.raises(UsageError, match="token"):
                await asyncio.to_thread(admin_service.proven, owner)
        finally:
            await coordinator.stop()

    with listening(impostor) as address:
        asyncio.run(invent(address))
    assert b"cache/db1" not in impostor.heard
    assert TOKEN.encode() not in impostor.heard


SECRET = "only-root-may-read-this"

HOST_FILE = """
version = 1
[coordinator]
zookeeper = "{zookeeper}"
[publisher]
state_dir = "state"
[monitor]
host = "db-7"
[datasets.shop.copies.main.logs.db1]
source = "{source}"
host = "db-7"
"""


class Listener:
    """A server of the attacker: it greets as MySQL does, and records what it is sent: a hash of the password."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                with client, suppress(OSError):
                    self.connections += 1
                    client.settimeout(PATIENCE_S)
                    self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        client.sendall(packets([greeting()], 0))
        self.heard += client.recv(4096)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[Path]:
    writer = RocksWriter(tmp_path / "store")
    writer.put(b"k", b"v")
    yield writer.path
    writer.kill()


def host_file(folder: Path, zookeeper: str, source: str) -> Config:
    path = folder / "host.toml"
    path.write_text(HOST_FILE.format(zookeeper=zookeeper, source=source))
    return load(path)


async def stored(
    config: Config, *, dataset: Mapping[str, Any] | None = None, **hostile: Any
) -> Mapping[str, DatasetConfig]:
    """What a monitor reads after ``config`` was applied and the attacker wrote ``hostile`` over the log's record, and
    ``dataset`` over its dataset's."""
    coordinator = ZooKeeperCoordinator(config.coordinator)
    await coordinator.start()
    try:
        await publish_config(config, coordinator)
        hosts, _, root = config.coordinator.zookeeper.partition("/")
        client = KazooClient(hosts)
        await asyncio.to_thread(client.start)
        path = f"/{root}/datasets/shop"
        record = json.loads((await asyncio.to_thread(client.get, path))[0])
        record["copies"]["main"]["logs"]["db1"] |= hostile
        record |= dataset or {}
        await asyncio.to_thread(client.set, path, json.dumps(record).encode())
        await asyncio.to_thread(client.stop)
        await asyncio.to_thread(client.close)
        return (await coordinator.configuration()).datasets
    finally:
        await coordinator.stop()


async def served(config: Config, datasets: Mapping[str, DatasetConfig]) -> None:
    """Run what the monitor of this host would, from the file that it writes for its publisher, until it serves or
    fails."""
    wanted = desired_logs(config, datasets)[LogKey("shop", "main", "db1")]
    handed_over = parse_json(config_to_json(wanted.config), "run.json")
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(daemon.serve(handed_over, "shop", "main", "db1", ready.set_result))
    await asyncio.wait((ready, serving), return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def test_a_record_cannot_have_a_file_sent_to_an_address(zookeeper: str, tmp_path: Path, listener: Listener) -> None:
    """Red before: the publisher dialled the address and sent a hash of what was in the file."""
    secret = tmp_path / "shadow"
    secret.write_text(SECRET + "\n")
    config = host_file(tmp_path, zookeeper, "mysql://wormhole@127.0.0.1:1/?tls=off")
    place = f"mysql://root@127.0.0.1:{listener.port}/?tls=off"
    datasets = asyncio.run(stored(config, source=place, password_file=str(secret), kind="mysql"))
    asyncio.run(served(config, datasets))  # what the host lists for this log
    assert (listener.connections, bytes(listener.heard)) == (0, b"")


def test_a_record_cannot_name_what_the_host_does_not_list(zookeeper: str, tmp_path: Path) -> None:
    config = host_file(tmp_path, zookeeper, "mysql://wormhole@127.0.0.1:1/?tls=off")
    for hostile in ("db2", "../../etc/passwd", "x" * 10_000):
        datasets = asyncio.run(stored(config, source=hostile, kind="mysql"))
        if hostile == "db2":
            with pytest.raises(ConfigError, match=r"names the source 'db2', which this host does not list") as refused:
                asyncio.run(served(config, datasets))
            assert "[sources.db2]" in str(refused.value.hint)
        else:
            assert datasets == {}, "a record that names nothing is left out"


def test_a_record_cannot_choose_where_files_are_written(zookeeper: str, tmp_path: Path, rocks: Path) -> None:
    """Red before: the publisher made the folder and linked the database's files into it."""
    config = host_file(tmp_path, zookeeper, f"rocksdb://{rocks}")
    chosen = tmp_path / "chosen by the attacker"
    datasets = asyncio.run(stored(config, source=f"rocksdb://{rocks}", pin_folder=str(chosen), kind="rocksdb"))
    asyncio.run(served(config, datasets))
    assert not chosen.exists()


def test_a_record_cannot_have_a_file_opened_as_a_format(zookeeper: str, tmp_path: Path, rocks: Path) -> None:
    """Red before: it opened the file, which with `/dev/zero` takes all memory; here a pipe, at which opening would
    wait."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    config = host_file(tmp_path, zookeeper, f"rocksdb://{rocks}")
    datasets = asyncio.run(stored(config))
    spec = {"protobuf": {"descriptor_set": str(pipe), "message": "a.B"}}
    shop = DatasetConfig.model_validate({"name": "shop", "copies": datasets["shop"].copies, "value_format": spec})
    with pytest.raises(ConfigError, match=r"the descriptor set .*pipe, which this host does not list"):
        asyncio.run(served(config, {"shop": shop}))


ARCHIVED = """
version = 1
[coordinator]
zookeeper = "{zookeeper}"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
[datasets.shop.archive]
to = "/srv/archive"
[applications.archive]
dataset = "shop"
start = "earliest"
[applications.cache]
dataset = "shop"
start = "earliest"
"""
EVERYTHING_ARCHIVED = (
    ("archive", "expire"),
    ("archive", "show"),
    ("archive", "verify"),
    ("archive", "compact", "--dry-run"),
    ("archive", "run"),
    ("snapshot", "--to", "out"),
    ("history", "--to", "out"),
    ("audit", "--app", "cache"),  # as `replay` does, once publishers answered
)


class Bucket(Listener):
    """An object store of the attacker: it records the head of each request, and refuses all."""

    def _talk(self, client: socket.socket) -> None:
        self.heard += client.recv(65536)
        client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """With an operator who has keys for another one in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOPERATOR")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = Bucket()
    yield found
    found.close()


def archived(folder: Path, zookeeper: str, **hostile: Any) -> Path:
    """The operator's file, applied, after the attacker wrote ``hostile`` over parts of the dataset's record."""
    file = folder / "shop.toml"
    file.write_text(ARCHIVED.format(zookeeper=zookeeper))
    asyncio.run(stored(load(file), dataset=hostile))
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_a_record_cannot_have_an_archive_asked_with_the_operators_keys(
    zookeeper: str, tmp_path: Path, bucket: Bucket
) -> None:
    """Red before: it got requests that were signed with the keys, and the session token."""
    to = f"s3://b/archive?endpoint_override=127.0.0.1:{bucket.port}&scheme=http&region=eu-west-1"
    archived(tmp_path, zookeeper, archive={"to": to})
    code, _, err = run("archive", "show", "-c", zookeeper)
    assert bytes(bucket.heard) == b""
    assert (code, "only ZooKeeper records" in err, f"--archive '{to}'" in err) == (2, True, True), err


def test_a_record_cannot_have_a_folder_read_written_or_expired(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red before: `expire` let go of what another dataset's owner keeps, and `run` began an archive wherever root
    may write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    theirs = tmp_path / "theirs"
    write_archive(theirs, {"db1": [[tx(put(b"k", b"v"))]]}, dataset="shop")
    before = contents(theirs)
    archived(tmp_path, zookeeper, archive={"to": str(theirs), "keep": 1})
    for words in EVERYTHING_ARCHIVED:
        code, _, err = run(*words, "-c", zookeeper)
        assert contents(theirs) == before, words
        assert (code, "only ZooKeeper records" in err) == (2, True), (words, err)
    code, out, err = run("archive", "show", "-c", zookeeper, "--archive", str(theirs))
    assert (code, "db1" in out) == (0, True), err
    monkeypatch.setenv("WORMHOLE_ARCHIVE", f"/srv/other {theirs}")
    assert run("archive", "show", "-c", zookeeper)[0] == 0
    code, _, err = run("archive", "expire", "-c", zookeeper)
    assert (code, "how long" in err) == (2, True), "what goes for ever is not decided by others either"
    assert contents(theirs) == before


def test_a_record_cannot_have_a_file_opened_by_the_operator(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red before: it was opened as a descriptor set; here a pipe, at which opening would wait."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ours = tmp_path / "archive"
    write_archive(ours, {"db1": [[tx(put(b"k", b"v"))]]}, dataset="shop")
    spec = {"protobuf": {"descriptor_set": str(pipe), "message": "a.B"}}
    archived(tmp_path, zookeeper, archive={"to": str(ours)}, value_format=spec)
    for words in (
        ("snapshot", "--to", "out", "--field", "default:city=text"),
        ("audit", "--app", "cache"),
    ):
        code, _, err = run(*words, "-c", zookeeper, "--archive", str(ours))
        assert (code, f"the descriptor set {pipe}" in err, "-c FILE" in err) == (2, True, True), (words, err)


NODES = {
    "applications/cache/subscribers/s": {"address": "127.0.0.1:1", "weight": 1.0, "started": 1.0},
    "applications/cache/flows/db1": {"owner": "o", "subscriber": "s", "epoch": 1, "state": "live"},
    "publishers/shop/main/db1": {"host": "h", "pid": 1, "address": "127.0.0.1:1", "started": 1.0},
    "hosts/h/monitor": {"pid": 1, "address": "", "started": 1.0, "publishers": {}},
}
GARBAGE = [
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"address": "unix:/run/docker.sock", "weight": 1, "started": 1, "host": "h", "pid": 1, "publishers": {}}',
    b'{"address": "'
    + b"a" * 400_000
    + b':1", "host": "h", "pid": 1, "state": "x", "owner": "o", "subscriber": "s", "epoch": 1}',
    b'{"epoch": 1e400, "pid": 1e400, "weight": NaN}',
    b'{"x": "' + b"y" * 900_000 + b'"}',
]


async def written(zookeeper: str, nodes: Mapping[str, bytes]) -> ZooKeeperCoordinator:
    """A started coordinator, after these nodes were put where it reads."""
    coordinator = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))
    await coordinator.start()
    for path, data in nodes.items():
        await coordinator._nodes.put(f"{coordinator._paths.root}/{path}", data)
    return coordinator


async def everything(coordinator: ZooKeeperCoordinator) -> int:
    """How many records are read, of all kinds."""
    read = await coordinator.configuration()
    lists = (await coordinator.subscribers(), await coordinator.publishers(), await coordinator.monitors())
    return len(read.datasets) + len(read.applications) + len(await coordinator.flows()) + sum(map(len, lists))


async def test_garbage_is_left_out_by_name(zookeeper: str) -> None:
    coordinator = await written(zookeeper, {path: json.dumps(record).encode() for path, record in NODES.items()})
    try:
        assert await everything(coordinator) == len(NODES)
        for path in NODES:
            for data in GARBAGE:
                if b'"address"' in data and "flows" in path:
                    continue
                await coordinator._nodes.put(f"{coordinator._paths.root}/{path}", data)
                assert await everything(coordinator) == len(NODES) - 1, (path, data[:40])
                (problem,) = coordinator.problems.values()
                assert path in str(problem)
                assert len(str(problem)) < 1000, "what is quoted of it is short"
            await coordinator._nodes.put(f"{coordinator._paths.root}/{path}", json.dumps(NODES[path]).encode())
    finally:
        await coordinator.stop()


async def test_what_is_invented_in_masses_is_bounded(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are made small: what counts is that they hold, and are told."""
    monkeypatch.setattr(nodes, "MOST_CHILDREN", 20)
    monkeypatch.setattr(nodes, "MOST_PROBLEMS", 5)
    record = json.dumps(NODES["applications/cache/subscribers/s"]).encode()
    made = {f"applications/cache/subscribers/s{number:02}": record for number in range(30)}
    made |= {f"applications/cache/flows/db{number:02}": b"garbage" for number in range(30)}
    coordinator = await written(zookeeper, made)
    try:
        assert len(await coordinator.subscribers()) == 20
        assert "has 30 nodes below it, of which the first 20" in str(
            coordinator.problems[f"{coordinator._paths.root}/applications/cache/subscribers"]
        )
        assert not await coordinator.flows()
        assert len(coordinator.problems) == 5
    finally:
        await coordinator.stop()


async def test_settings_have_a_bound_together(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{"dataset": "shop", "start": "latest", "where": "' + b"x" * 1000 + b'"}'
    monkeypatch.setattr(config_store, "MOST_BYTES", 5 * len(text))
    coordinator = await written(zookeeper, {f"applications/a{number}": text for number in range(9)})
    try:
        assert len((await coordinator.configuration()).applications) == 5
        assert "of settings; the rest is left out" in str(
            coordinator.problems[f"{coordinator._paths.root}/applications"]
        )
    finally:
        await coordinator.stop()
