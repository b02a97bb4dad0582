"""A NameNode that is killed, and one whose rights do not suffice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.hdfs.datastore import DATASTORE
from publisher.sources import open_source
from tests.support.hadoop import NameNodeServer
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.findings import Severity
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import Read, read_until


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameNodeServer]:
    server = NameNodeServer(tmp_path_factory.mktemp("hdfs"))
    yield server
    server.close()


@pytest.fixture
def source(name_node: NameNodeServer, tmp_path: Path) -> Iterator[LogSource]:
    found = open_source(name_node.url, log="log", state_dir=tmp_path, sharding=Sharding("table"))
    found.start()
    yield found
    found.stop()


def test_nothing_is_lost_and_nothing_comes_twice_when_the_name_node_is_killed(
    name_node: NameNodeServer, source: LogSource
) -> None:
    start = source.latest()
    reader = source.open(start)
    names = [f"/killed/{number}" for number in range(40)]
    read = Read(last_end=start.order)
    for number, name in enumerate(names):
        name_node.files.mkdirs(name_node.path(name))
        if number % 20 == 19:
            read_until(reader, source.latest().order, into=read)
            name_node.kill()
            with pytest.raises(SourceUnavailable) as error:
                reader.read(1 << 20, 86_400.0)
            assert error.value.hint
            assert source.status().end_unknown
            name_node.start()
            reader.close()
            reader = source.open(read.markers[-1])
    reader.close()
    assert [one.key[0] for one in read.updates] == ["/killed", *names]
    assert not source.status().end_unknown


def test_the_doctor_names_what_is_there_and_what_is_missing(name_node: NameNodeServer, tmp_path: Path) -> None:
    actions = name_node.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction
    name_node.files.mkdirs(name_node.path("/lake"))
    name_node.files.setSafeMode(actions.SAFEMODE_ENTER)
    try:
        report = DATASTORE.examine(name_node.url, tmp_path, Login())
    finally:
        name_node.files.setSafeMode(actions.SAFEMODE_LEAVE)
    assert {one.check: one.severity for one in report.findings if one.severity is not Severity.OK} == {
        "safe_mode": Severity.WARN,
        "not_in_edits": Severity.WARN,
    }
    assert "lake" in [one.name for one in report.tables]
    stranger = name_node.url.replace("//", "//stranger@")
    report = DATASTORE.examine(stranger, tmp_path, Login())
    (finding,) = [one for one in report.findings if one.severity is Severity.PROBLEM]
    assert (finding.check, finding.known_code) == ("rights", "account-lacks-rights")
    refused = open_source(stranger, log="log", state_dir=tmp_path, sharding=Sharding("log"))
    with pytest.raises(UsageError, match="stranger") as error:
        refused.start()
    refused.stop()
    assert error.value.code == "account-lacks-rights"
