"""A NameNode that is killed, one whose rights do not suffice, and work that begins once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from datastores.hdfs.datastore import DATASTORE
from publisher.sources import open_source
from tests.support.eventually import until
from tests.support.hadoop import NameNodeServer
from tests.support.marked import MARK, marked
from tests.system.harness.up import Up
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
        if number == 19:
            read_until(reader, source.latest().order, into=read)
            name_node.kill()
            with pytest.raises(SourceUnavailable) as error:
                reader.read(1 << 20, 86_400.0)
            assert error.value.hint
            assert source.status().end_unknown
            name_node.start()
            reader.close()
            reader = source.open(read.markers[-1])
    read_until(reader, source.latest().order, into=read)
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


_BEGINS_WORK = """
import os, sys
from subscriber_sdk import Subscriber, Update, run

class Worker(Subscriber):
    async def on_update(self, update: Update) -> None:
        day = os.path.basename(os.path.dirname(update.key[0]))
        try:
            os.close(os.open(os.path.join(sys.argv[2], day), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        with open(os.path.join(sys.argv[2], "begun"), "a") as begun:
            begun.write(day + "\\n")

run(Worker(), application="cache", coordinator=sys.argv[1])
"""


class Days:
    """Folders of days, whose ``_SUCCESS`` is written last; a subscriber begins each day's work."""

    def __init__(self, server: NameNodeServer, up: Up, folder: Path) -> None:
        self._server = server
        self._up = up
        self.begun = folder / "begun"
        self._worker: subprocess.Popen[Any] | None = None

    def finish(self, day: str) -> None:
        files, path = self._server.files, self._server.path
        files.create(path(f"/lake/{day}/_temporary/part-0")).close()
        files.rename(path(f"/lake/{day}/_temporary/part-0"), path(f"/lake/{day}/part-0"))
        files.delete(path(f"/lake/{day}/_temporary"), True)
        files.create(path(f"/lake/{day}/_SUCCESS")).close()

    def work(self) -> None:
        self._worker = subprocess.Popen(
            [sys.executable, "-c", _BEGINS_WORK, str(self._up.file), str(self.begun.parent)],
            env={**os.environ, MARK: self._up.mark},
        )

    def end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()

    def days(self) -> list[str]:
        return self.begun.read_text().split() if self.begun.exists() else []


def test_work_begins_once_for_each_day_although_everything_is_killed(name_node: NameNodeServer, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with closing(Up(tmp_path, f'source = "{name_node.url}"')) as up:
        selected = """where = 'name == "_SUCCESS" and op == "upsert" and not left'\ntables = ["lake"]\n"""
        up.file.write_text(up.file.read_text() + selected)
        days = Days(name_node, up, work)
        code, text = up.up()
        assert code == 0, text
        days.work()
        days.finish("day=1")
        until(lambda: days.days() == ["day=1"], "the first day's work does not begin")
        days.end()
        days.finish("day=2")
        for pid in marked(up.mark):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not marked(up.mark), "a process outlives SIGKILL, a JVM for example")
        days.finish("day=3")
        days.finish("day=4")
        code, text = up.up()
        assert code == 0, text
        days.work()
        until(lambda: len(days.days()) >= 4, "the work of days does not begin")
        days.finish("day=5")
        until(lambda: len(days.days()) >= 5, "the last day's work does not begin")
        assert days.days() == [f"day={number}" for number in range(1, 6)]
        days.end()
        assert up.down()[0] == 0
