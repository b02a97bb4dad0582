"""A ready file counts only while the very process that wrote it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wormhole.host.ready_file import ReadyFile, process_started, read_ready, ready_path, remove_ready, write_ready

ME = ReadyFile(os.getpid(), process_started(os.getpid()) or 0, "127.0.0.1:1", "127.0.0.1:2", "0.1", "abc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = ready_path(tmp_path, "shop", "main", "db1")
    place.parent.mkdir(parents=True)
    return place


def test_it_comes_back_and_can_be_read_by_others(path: Path) -> None:
    write_ready(path, ME)
    assert read_ready(path) == ME
    assert path.stat().st_mode & 0o777 == 0o644
    assert [found.name for found in path.parent.iterdir()] == ["publisher.json"], "nothing half-made stays"
    remove_ready(path)
    assert read_ready(path) is None
    remove_ready(path)  # twice does no harm


def test_a_number_that_was_used_again_is_not_the_process(path: Path) -> None:
    write_ready(path, ReadyFile(ME.pid, ME.started - 1, "", "", "", ""))
    assert read_ready(path) is None


def test_the_file_of_a_dead_process_does_not_count(path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_started(process.pid)
    assert started is not None
    write_ready(path, ReadyFile(process.pid, started, "", "", "", ""))
    assert read_ready(path) is not None
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
    assert process_started(process.pid) is None, "a zombie serves nobody"
    assert read_ready(path) is None
    process.communicate()
    assert process_started(process.pid) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "\udcff", '{"pid": 1}', json.dumps(dict.fromkeys(ReadyFile.__slots__, "1"))]
)
def test_what_makes_no_sense_is_no_ready_file(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert read_ready(path) is None


def test_a_write_that_fails_leaves_nothing(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError):
        write_ready(path, ME)
    assert list(path.parent.iterdir()) == [path]
