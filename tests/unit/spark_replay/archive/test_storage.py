"""What every storage does; what a local disk, S3 and HDFS do."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest

from spark_replay.archive import hdfs_files
from spark_replay.archive.open_storage import open_storage
from spark_replay.archive.remote_storage import HdfsStorage, S3Storage
from spark_replay.archive.storage import LocalStorage, Storage, storage_errors
from tests.support.eventually import PATIENCE_S
from tests.support.name_node import NameNode
from tests.support.ports import free_port
from wormhole.model.errors import ArchiveConflict, ArchiveError, ArchiveUnavailable, UsageError, WormholeError

# --- storage: what every storage does; what a local disk does, and whose move it is when it does not ---


@pytest.fixture
def disk(tmp_path: Path) -> LocalStorage:
    (tmp_path / "archive").mkdir()
    return LocalStorage(str(tmp_path / "archive"))


def test_files_and_folders(storage: Storage) -> None:
    assert (storage.files("none"), storage.folders(), storage.read("none")) == ([], [], None)
    assert storage.create_if_absent("s/manifests/1", b"mine")
    assert not storage.create_if_absent("s/manifests/1", b"theirs")
    assert storage.read("s/manifests/1") == b"mine"
    assert [one.name for one in storage.files("s/manifests")] == ["1"]
    with storage.open_output("s/data/x") as stream:
        stream.write(b"abc")
    storage.settle("s/data/x")
    [found] = storage.files("s/data")
    assert (found.name, found.bytes) == ("x", 3)
    assert found.modified_s > 1_700_000_000
    storage.replace("s/garbage.json", b"{}")
    storage.replace("s/garbage.json", b"[]")
    assert storage.read("s/garbage.json") == b"[]"
    assert storage.folders() == ["s"]
    with storage.open_input("s/data/x") as source:
        assert source.read_at(2, 1) == b"bc"
    for name in ("s/data/x", "s/data/x", "s/manifests/1"):
        storage.delete(name)
    assert storage.files("s/data") == storage.files("s/manifests") == []
    with pytest.raises(ArchiveError, match="cannot read"):
        storage.open_input("s/data/x")


def test_of_many_at_once_one_creates_it(storage: Storage) -> None:
    created: list[int] = []
    begin = threading.Barrier(6)

    def create(number: int) -> None:
        begin.wait()
        if storage.create_if_absent("s/manifests/7", b"%d" % number):
            created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 1
    assert storage.read("s/manifests/7") == b"%d" % created[0]
    assert [one.name for one in storage.files("s/manifests")] == ["7"]


def test_what_is_no_file_is_not_waited_for(disk: LocalStorage) -> None:
    disk.replace("s/data/y", b"")
    os.mkfifo(disk.path("s/data/x"))
    with pytest.raises(ArchiveError, match="is no file"):
        disk.open_input("s/data/x")
    with pytest.raises(ArchiveError, match=r"cannot read .*/none: No such file"):
        disk.open_input("s/data/none")


def synced(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """What ``act`` makes durable, and the names that it makes in between."""
    happened: list[str] = []
    fsync, link = os.fsync, os.link

    def watched(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        happened.append(f"fsync {name.split('.')[1] if name.startswith('.') else name}")
        fsync(descriptor)

    def linked(source: Path, target: Path) -> None:
        happened.append(f"link {target.name}")
        link(source, target)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(os, "link", linked)
    act()
    monkeypatch.undo()
    return happened


def test_contents_are_durable_before_the_name_and_the_name_before_it_counts(
    disk: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(disk.root).parent.name
    Path(disk.root).rmdir()
    assert synced(monkeypatch, lambda: disk.create_if_absent("1", b"x")) == [
        f"fsync {folder}",
        "fsync 1",
        "link 1",
        "fsync archive",
    ]
    assert synced(monkeypatch, lambda: disk.create_if_absent("s/manifests/1", b"x")) == [
        "fsync archive",
        "fsync s",
        "fsync 1",
        "link 1",
        "fsync manifests",
    ]
    assert synced(monkeypatch, lambda: disk.settle("s/manifests/1")) == ["fsync 1", "fsync manifests"]


def test_where_a_disk_is_not_mounted_no_archive_begins(tmp_path: Path) -> None:
    disk = LocalStorage(str(tmp_path / "mnt" / "archive"))
    with pytest.raises(ArchiveError, match="No such file") as caught:
        disk.create_if_absent("archive.json", b"")
    assert "mounted" in str(caught.value.hint)
    assert not (tmp_path / "mnt").exists()


def test_in_an_archive_that_is_gone_nothing_begins(disk: LocalStorage) -> None:
    disk.create_if_absent("archive.json", b"")
    disk.create_if_absent("s/manifests/1", b"x")
    shutil.rmtree(disk.root)
    for act in (lambda: disk.create_if_absent("s/manifests/2", b"x"), lambda: disk.open_output("s/data/x")):
        with pytest.raises(ArchiveError, match="No such file") as caught:
            act()
        assert "mounted" in str(caught.value.hint)
    assert not Path(disk.root).exists()


def test_a_full_disk_leaves_what_was_there(disk: LocalStorage) -> None:
    disk.create_if_absent("s/manifests/1", b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ArchiveUnavailable, match=r"cannot write .*/s/manifests/2: File too large") as caught:
            disk.create_if_absent("s/manifests/2", b"x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "make room" in str(caught.value.hint)
    assert [one.name for one in disk.files("s/manifests")] == ["1"]
    assert disk.create_if_absent("s/manifests/2", b"x")


def test_a_file_system_without_hard_links_is_named(disk: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(ArchiveError, match="without hard links"):
        disk.create_if_absent("1", b"x")
    assert disk.files("") == []


AS_NOBODY = """
import os, sys
from spark_replay.archive.storage import LocalStorage
disk = LocalStorage(sys.argv[1])
os.seteuid(65534)
for act in (lambda: disk.create_if_absent("s/manifests/2", b""), lambda: disk.files("s/manifests"), lambda: disk.read("archive.json")):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, error)
"""  # noqa: E501


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_who_may_not_gets_the_reason(disk: LocalStorage) -> None:
    disk.create_if_absent("s/manifests/1", b"x")
    disk.create_if_absent("archive.json", b"x")
    Path(disk.root).chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, disk.root],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    for line in lines:
        assert line.startswith("ArchiveError cannot "), line
        assert "needs the right to read, write and delete there" in line


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "full"), ArchiveUnavailable),
        (OSError(errno.EDQUOT, "full"), ArchiveUnavailable),
        (OSError(errno.EIO, "broken"), ArchiveUnavailable),
        (PermissionError(errno.EACCES, "no"), ArchiveError),
        (OSError(errno.EROFS, "read only"), ArchiveError),
        (OSError("AWS Error ACCESS_DENIED during PutObject"), ArchiveError),
        (OSError("AWS Error NO_SUCH_BUCKET during HeadObject"), ArchiveError),
        (OSError("AWS Error NETWORK_CONNECTION: curlCode: 7"), ArchiveUnavailable),
    ],
)
def test_whose_move_it_is(error: OSError, kind: type[WormholeError]) -> None:
    with pytest.raises(kind, match=r"^cannot write /a/b: ") as caught, storage_errors("write", "/a/b"):
        raise error
    assert caught.value.__cause__ is error


def test_only_some_storages_are_known(tmp_path: Path) -> None:
    found = open_storage(str(tmp_path))
    assert isinstance(found, LocalStorage)
    assert pickle.loads(pickle.dumps(found)).root == found.root
    with pytest.raises(UsageError, match="cannot lie in gs://"):
        open_storage("gs://bucket/folder")


def test_what_is_made_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        storage = LocalStorage(str(tmp_path / "a" / "archive"))
        storage.make_root()
        assert storage.create_if_absent("shop/one", b"1")
        storage.replace("shop/two", b"2")
        with storage.open_output("shop/rows/three") as output:
            output.write(b"3")
    finally:
        os.umask(before)
    found = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert found == {
        "a": 0o700,
        "a/archive": 0o700,
        "a/archive/shop": 0o700,
        "a/archive/shop/one": 0o600,
        "a/archive/shop/two": 0o600,
        "a/archive/shop/rows": 0o700,
        "a/archive/shop/rows/three": 0o600,
    }


# --- remote storage ---


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
        (answer(409, "ConditionalRequestConflict"), ArchiveConflict, "another process just now"),
        (answer(501, "NotImplemented"), ArchiveError, "does not know the condition If-None-Match"),
        (answer(403, "AccessDenied"), ArchiveError, "AccessDenied"),
        (answer(503, "SlowDown"), ArchiveUnavailable, "SlowDown"),
        (botocore.exceptions.NoCredentialsError(), ArchiveError, "no credentials were found"),
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
