"""S3 by conditional requests, asked over HTTP; HDFS by what its name node does with a folder."""

from __future__ import annotations

import errno
import pickle
import sys
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest

from spark_replay.archive import hdfs_files
from spark_replay.archive.open_storage import open_storage
from spark_replay.archive.remote_storage import HdfsStorage, S3Storage
from tests.support.name_node import NameNode
from tests.support.ports import free_port
from wormhole.model.errors import ArchiveConflict, ArchiveError, ArchiveUnavailable, UsageError, WormholeError


@pytest.fixture
def node() -> NameNode:
    return NameNode()


@pytest.fixture
def stored(node: NameNode, tmp_path: Path) -> HdfsStorage:
    return HdfsStorage(f"hdfs://name:9000{tmp_path}/archive", node.files())


def test_a_storage_travels(s3_service: str) -> None:
    stored = S3Storage(f"s3://archives/a?{s3_service}")
    assert pickle.loads(pickle.dumps(stored)).create_if_absent("pickled", b"")
    assert not stored.create_if_absent("pickled", b"")


def test_no_bucket(s3_service: str) -> None:
    none = S3Storage(f"s3://none-such/a?{s3_service}")
    with pytest.raises(ArchiveError, match="NoSuchBucket"):
        none.create_if_absent("x", b"")
    with pytest.raises(ArchiveError, match="cannot create none-such/a/x"):
        none.open_output("x")


class Refusing:
    """A client of S3 whose service answers every request so."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def put_object(self, **_: object) -> None:
        raise self._error


def answer(status: int, code: str) -> Any:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (answer(409, "ConditionalRequestConflict"), ArchiveConflict, "somebody else just now"),
        (answer(501, "NotImplemented"), ArchiveError, "does not know the condition If-None-Match"),
        (answer(403, "AccessDenied"), ArchiveError, "AccessDenied"),
        (answer(503, "SlowDown"), ArchiveUnavailable, "SlowDown"),
        (botocore.exceptions.NoCredentialsError(), ArchiveError, "nothing says who asks"),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="http://h"), ArchiveUnavailable, "http://h"),
    ],
)
def test_what_a_service_refuses(s3_service: str, error: Exception, kind: type[Exception], said: str) -> None:
    stored = S3Storage(f"s3://archives/a?{s3_service}")
    stored._client = Refusing(error)
    with pytest.raises(kind, match=said):
        stored.create_if_absent("x", b"")


def test_nobody_answers_a_commit(s3_service: str) -> None:
    there, _, rest = s3_service.partition("&")
    stored = S3Storage(f"s3://archives/a?{there.rpartition(':')[0]}:{free_port()}&{rest}")
    with pytest.raises(ArchiveUnavailable, match="cannot write s3://archives/a/x"):
        stored.create_if_absent("x", b"")


def test_without_botocore_only_commits_are_refused(s3_service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = S3Storage(f"s3://archives/a?{s3_service}")
    stored.replace("x", b"1")
    monkeypatch.setitem(sys.modules, "botocore.config", None)
    monkeypatch.setitem(sys.modules, "botocore", None)
    assert stored.read("x") == b"1"
    with pytest.raises(UsageError, match="needs botocore") as caught:
        stored.create_if_absent("y", b"")
    assert caught.value.hint == "pip install 'wormhole-pubsub[s3]'"


def test_hdfs_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hdfs_files._WAITS, "dfs.client.failover.max.attempts", "0")
    stored = HdfsStorage("hdfs://127.0.0.1:1/archive")
    with pytest.raises(ArchiveUnavailable, match=r"cannot read /archive/x.*Connection refused"):
        stored.read("x")
    assert pickle.loads(pickle.dumps(stored)).filesystem == stored.filesystem


def test_without_a_client_for_hdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UsageError, match="needs hdfs-native") as caught:
        open_storage("hdfs://name:9000/archive")
    assert caught.value.hint == "pip install 'wormhole-pubsub[hdfs]'"


def test_a_mover_that_cannot(node: NameNode, stored: HdfsStorage) -> None:
    node.refuses[stored.path("x")] = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ArchiveUnavailable, match="No space left"):
        stored.create_if_absent("x", b"1")
    assert stored.read("x") == b"1", "it was made, and the answer got lost: its bytes say whose it is"
    assert not stored.create_if_absent("x", b"2")


def test_a_request_that_the_client_repeated(node: NameNode, stored: HdfsStorage) -> None:
    """The first one moved the folder: the second one finds it no more."""
    assert stored.create_if_absent("x", b"1")
    rename = node.rename

    def again(source: str, target: str, overwrite: bool) -> None:
        rename(source, target, overwrite)
        raise FileNotFoundError(f"rename source {source} is not found.")

    node.rename = again  # type: ignore[method-assign]
    assert not stored.create_if_absent("y", b"2")
    assert stored.read("y") == b"2"


def test_a_folder_that_somebody_takes_away_while_it_is_moved(node: NameNode, stored: HdfsStorage) -> None:

    def gone(source: str, target: str, overwrite: bool) -> None:
        raise FileNotFoundError(f"rename source {source} is not found.")

    node.rename = gone  # type: ignore[method-assign]
    with pytest.raises(ArchiveError, match="is not found"):
        stored.create_if_absent("y", b"2")


def test_what_is_replaced_is_never_seen_half(node: NameNode, stored: HdfsStorage) -> None:
    """Nor is it when the writer dies."""
    stored.replace("x", b"old")
    seen: list[bytes | None] = []
    create = node.create

    def looked_at(path: str, options: Any) -> Any:
        file = create(path, options)
        seen.append(stored.read("x"))
        return file

    node.create = looked_at  # type: ignore[method-assign]
    stored.replace("x", b"new")
    assert (seen, stored.read("x")) == ([b"old"], b"new")
    assert [one.name for one in Path(stored.path("x")).iterdir()] == ["content"]

    def dies(source: str, target: str, overwrite: bool) -> None:
        raise RuntimeError("DataTransferError(All DataNodes failed)")

    node.rename = dies  # type: ignore[method-assign]
    with pytest.raises(ArchiveUnavailable):
        stored.replace("x", b"newer")
    assert stored.read("x") == b"new"


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        ("RPCError(org.apache.hadoop.security.AccessControlException, Permission denied)", ArchiveError, "needs the"),
        ("RPCError(org.apache.hadoop.hdfs.protocol.DSQuotaExceededException, ...)", ArchiveUnavailable, "make room"),
        ("DataTransferError(All DataNodes failed)", ArchiveUnavailable, "try again"),
    ],
)
def test_what_a_name_node_refuses(
    node: NameNode, stored: HdfsStorage, said: str, kind: type[WormholeError], hint: str
) -> None:
    node.refuses[stored.path("x/content")] = RuntimeError(said)
    with pytest.raises(kind, match=said.partition("(")[0]) as caught:
        stored.read("x")
    assert hint in str(caught.value.hint)


def test_what_is_closed_is_on_the_disks(node: NameNode, stored: HdfsStorage) -> None:
    with stored.open_output("s/data/x") as stream:
        stream.write(b"abc")
        stream.flush()
    assert node.synced == {stored.path("s/data/x"): 1}
    with stored.open_input("s/data/x") as source:
        assert (source.size(), source.read(), source.read()) == (3, b"abc", b"")
        assert source.seek(-2, 2) == 1
        assert (source.read(100), source.tell()) == (b"bc", 3)
    with stored.open_output("s/data/empty"):
        pass
    with stored.open_input("s/data/empty") as source:
        assert source.read() == b""
