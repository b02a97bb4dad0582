"""`wormholectl tail` and `doctor` as users run them: a process of its own beside a database that another one writes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import PATIENCE_S
from tests.support.rocks_writer import RocksWriter
from wormholectl.shared.errors import DEBUG


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RocksWriter]:
    started = RocksWriter(tmp_path / "store")
    yield started
    started.exit()


# A shell lets what it starts in the background ignore SIGINT, and that is inherited: here it has to be heard.
_PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from wormholectl import main
main()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, *arguments]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != DEBUG} | {"COLUMNS": "200"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=environment())


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def url(writer: RocksWriter) -> str:
    return f"rocksdb://{writer.path}"


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_all_that_is_in_the_log(writer: RocksWriter) -> None:
    writer.create_family("orders")
    writer.write([("put", "default", b"a", b"1"), ("put", "orders", b"\xff", b"\x00"), ("delete", "default", b"a")])
    writer.put(b"user:1", b"v")
    ended = run("tail", url(writer), "--from", "earliest", "--no-follow", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    told = objects(ended.stdout)
    assert [(one["op"], one["table"], one["key"], one["ends_transaction"]) for one in told] == [
        ("upsert", "default", ["a"], False),
        ("upsert", "orders", [{"b64": "/w=="}], False),
        ("delete", "default", ["a"], True),
        ("upsert", "default", ["user:1"], True),
    ]
    assert len({one["transaction"] for one in told}) == 2
    again = run("tail", url(writer), "--from", "seq:3", "--no-follow", "--json")
    assert [one["id"] for one in objects(again.stdout)] == [told[3]["id"]]
    filtered = run("tail", url(writer), "--from", "earliest", "--json", "-n", "1", "-t", "def*", "-f", 'op == "delete"')
    assert [one["id"] for one in objects(filtered.stdout)] == [told[2]["id"]]
    lines = run("tail", url(writer), "--from", "earliest", "--no-follow").stdout.splitlines()
    assert lines[1].endswith("upsert        orders  0xff = 0x00")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_follows_a_live_writer_until_it_gets_the_signal_to_end(writer: RocksWriter, ending: signal.Signals) -> None:
    with start("tail", url(writer)) as tailing:
        assert tailing.stdout is not None
        assert tailing.stderr is not None
        assert tailing.stderr.readline().startswith(f"tailing {url(writer)} from ")
        for number in range(3):
            writer.put(b"key", b"value %d" % number)
            assert tailing.stdout.readline().endswith(f"default  key = value {number}\n")
            writer.flush()  # RocksDB deletes the log file
        tailing.send_signal(ending)
        assert tailing.wait(PATIENCE_S) == 0
        assert tailing.stderr.read() == ""
    assert [path.name for path in writer.path.parent.iterdir()] == [writer.path.name]


def test_a_reader_that_goes_away_is_no_error(writer: RocksWriter) -> None:
    writer.many(0, 20_000)
    with start("tail", url(writer), "--from", "earliest", "--json") as tailing:
        assert tailing.stdout is not None
        assert tailing.stderr is not None
        tailing.stdout.readline()
        tailing.stdout.close()
        assert tailing.wait(PATIENCE_S) == 0
        assert tailing.stderr.read() == ""


def test_damage_ends_it_after_what_comes_before_and_can_be_passed(writer: RocksWriter) -> None:
    writer.many(0, 100)
    writer.kill()
    (log,) = writer.path.glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)
    ended = run("tail", url(writer), "--from", "earliest", "--no-follow", "--json")
    assert ended.returncode == 1
    assert f"error [log-undecodable]: {log.name}, offset " in ended.stderr
    assert "start the application anew from a place behind the damage" in ended.stderr
    assert "Traceback" not in ended.stderr
    before = objects(ended.stdout)
    assert 0 < len(before) < 100
    behind = re.search(r"valid log follows at (\d+)", ended.stderr)
    assert behind is not None
    place = f"1/{int(log.stem)}/{behind[1]}"
    ended = run("tail", url(writer), "--from", place, "--no-follow", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(before) + len(objects(ended.stdout)) == 99


def test_a_place_that_is_not_there(writer: RocksWriter) -> None:
    writer.put(b"a", b"1")
    ended = run("tail", url(writer), "--from", "1/9999/0")
    assert ended.returncode == 2
    assert ended.stderr.startswith("error [position-invalid]: 1/9999/0 is ahead of the log")
    assert "Traceback" not in ended.stderr


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    ended = run("tail", f"rocksdb://{tmp_path}")
    assert ended.returncode == 2
    assert "no RocksDB database" in ended.stderr


def test_the_doctor_of_a_database_with_default_options(writer: RocksWriter) -> None:
    writer.put(b"a", b"1")
    ended = run("doctor", url(writer), "--json", "--state-dir", str(writer.path.parent / "state"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout)
    assert (told["schema"], told["url"], told["severity"]) == (1, url(writer), "warn")
    assert run("doctor", f"rocksdb://{writer.path}/none").returncode == 3
