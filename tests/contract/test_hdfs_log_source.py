"""The contract of log sources over a real NameNode."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.hadoop import NameNodeServer
from tests.support.hdfs_harness import HdfsHarness, kept_jvms
from wormhole.model.sharding import Sharding, shard_of_hash
from wormhole.model.values import Op
from wormhole.ports.testing.contract import Harness, LogSourceContract, MakeHarness
from wormhole.ports.testing.reading import read_log
from wormhole.wire.rows import Row, encode_row


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameNodeServer]:
    server = NameNodeServer(tmp_path_factory.mktemp("hdfs"))
    with kept_jvms():
        yield server
    server.close()


@pytest.fixture
def new_harness(name_node: NameNodeServer, tmp_path: Path) -> MakeHarness:
    return partial(HdfsHarness, name_node, tmp_path)


class TestHdfs(LogSourceContract):
    def test_the_values_and_operations_arrive(self, harness: Harness) -> None:
        harness.commit([("put", "b", b"x", b"")])
        start = harness.source.latest()
        harness.commit([("put", "a", b"k", b"v"), ("delete", "b", b"x")])
        read = read_log(harness.source, start)
        assert [(one.op, one.key[0], one.after[:3]) for one in read.updates] == [
            ("upsert", f"/{harness.table('a')}/k", ("create", "k", "symlink")),
            ("delete", f"/{harness.table('b')}/x", ()),
            ("delete_range", f"/{harness.table('b')}/x/", ()),
        ]
        assert "v" in read.updates[0].after

    def test_a_large_one_comes_in_pieces_and_ends_once(self, harness: Harness) -> None:
        """An edit holds no value of a user's, so no size is approached."""
        assert isinstance(harness, HdfsHarness)
        harness.commit([("put", "a", b"old", b"v")])
        start = harness.source.latest()
        files, path = harness.server.files, harness.server.path
        files.rename(path(harness.path("a", b"old")), path(harness.path("b", b"new")))
        read = read_log(harness.source, start, 1)
        assert read.pieces == 3
        assert [one.op for one in read.updates] == ["delete", "delete_range", "delete", "upsert"]
        assert [one.id.rpartition(":")[2] for one in read.updates] == ["0", "1", "2", "3"]
        assert len(read.ended) == 1

    def test_by_hash(self, make_harness: MakeHarness) -> None:
        harness = make_harness(Sharding("hash", 5))
        start = harness.source.latest()
        harness.commit([("put", "ab"[n % 2], b"%d" % n, b"v") for n in range(10)])
        harness.commit([("delete", "a", b"0")])
        read = read_log(harness.source, start)
        read.check_ends()
        updates = read.updates
        of_one = [one for one in updates if one.op != "delete_range"]
        assert len(of_one) == 11
        for one in of_one:
            (value,) = Row.FromString(encode_row(Op.READ, (str(one.key[0]),))).key
            assert one.shard == shard_of_hash("log", value.SerializeToString(), 5)
        everywhere = {f"log.{k}of5" for k in range(5)}
        assert {one.shard for one in updates if one.op == "delete_range"} == everywhere
        assert harness.source.shards() == everywhere
