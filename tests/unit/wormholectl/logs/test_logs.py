"""The log that a command means, opened and read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from datastores.memory.source import MemorySource
from wormhole.model.errors import DecodeError, Diverged, SourceUnavailable, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.datastore import Login
from wormholectl.exit_codes import WRONG
from wormholectl.logs import opened, segment_stream
from wormholectl.logs.segment_stream import End, read_segments, whole_log
from wormholectl.logs.sources import datastore_at, login_of, source_kind, split_database, tables_within

# --- opened ---


def test_the_folder_is_beside_the_database_where_we_may_and_goes_with_the_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened._state_folder(tmp_path / "store") as folder:
        assert folder.parent == tmp_path
    with pytest.raises(SourceUnavailable), opened.open_log(f"rocksdb://{tmp_path}/none", Login()):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with opened._state_folder(tmp_path / "store") as folder:
        assert folder.parent != tmp_path
    assert not folder.exists()
    with opened._state_folder(None) as folder:
        assert folder.parent == Path(tempfile.gettempdir())


def test_what_a_killed_tail_left_is_cleared_away_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_SETTLED_S", -1.0)
    left = tmp_path / ".wormhole-tail-left"
    left.mkdir()
    (left / "000004.log").write_bytes(b"x")
    with opened._state_folder(tmp_path / "store") as first:
        assert not left.exists()
        with opened._state_folder(tmp_path / "store") as second:
            assert first.exists()
            assert first != second
    monkeypatch.setattr(opened, "_SETTLED_S", 60.0)
    left.mkdir()
    with opened._state_folder(tmp_path / "store"):
        assert left.exists()


def test_sigterm_is_an_interruption_while_it_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), opened._terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


# --- segment stream ---


Silent = Callable[[LogPosition, LogPosition | None], None]


class Paused:
    """A reader that returns nothing after its first segment until ``go_on`` is set; small pieces, so that there are
    several."""

    def __init__(self, source: MemorySource, marker: Datamarker) -> None:
        self._reader = source.open(marker)
        self._first = True
        self.go_on = threading.Event()
        self.empty_reads = 0

    def read(self, max_bytes: int, wait_s: float) -> Segment | None:
        if self._first:
            self._first = False
            return self._reader.read(1, wait_s)
        if not self.go_on.wait(0.001):
            self.empty_reads += 1
            return None
        return self._reader.read(1, wait_s)

    def close(self) -> None:
        self._reader.close()


class Undecodable(MemorySource):
    """Its end is not known while ``broken``."""

    broken = True

    def latest(self) -> Datamarker:
        if self.broken:
            raise DecodeError("the last record is no valid batch")
        return super().latest()


def unexpected(place: LogPosition, end: LogPosition | None) -> None:
    pytest.fail(f"silent at {place}, before {end}")


S = TypeVar("S", bound=MemorySource)


def filled(source: S, count: int = 5) -> S:
    source.start()
    for number in range(count):
        source.commit([(Op.UPSERT, "default", b"%d" % number, {"value": b"v"})])
    return source


def test_time_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_stream, "SILENCE_S", 0.05)
    source = filled(MemorySource())
    reader = Paused(source, source.earliest())
    said: list[tuple[LogPosition, LogPosition | None]] = []

    def silent(place: LogPosition, end: LogPosition | None) -> None:
        said.append((place, end))
        assert reader.empty_reads
        reader.go_on.set()

    end = End(source)
    filled(source)  # what is committed later is not asked for
    segments = list(read_segments(reader, source.earliest(), end, silent))
    assert sum(segment.updates for segment in segments) == 5
    assert said == [(segments[0].end, end.place)]


def test_what_is_at_the_end_already_reads_nothing() -> None:
    source = filled(MemorySource())
    latest = source.latest()
    assert list(read_segments(source.open(latest), latest, End(source), unexpected)) == []


def test_an_end_that_cannot_be_read_is_the_readers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_stream, "SILENCE_S", 0.05)
    source = filled(Undecodable())
    reader = source.open(source.earliest())
    plain = reader.read

    def read(max_bytes: int, wait_s: float) -> Segment | None:
        segment = plain(max_bytes, 0.0)
        if segment is None:
            source.latest()
        return segment

    monkeypatch.setattr(reader, "read", read)
    seen: list[Segment] = []
    with pytest.raises(DecodeError):
        seen.extend(read_segments(reader, source.earliest(), End(source), unexpected))


def test_an_end_that_becomes_known_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_stream, "SILENCE_S", 0.05)
    source = filled(Undecodable())
    end = End(source)
    source.broken = False
    said: list[LogPosition | None] = []
    segments = read_segments(source.open(source.earliest()), source.earliest(), end, lambda place, to: said.append(to))
    assert sum(segment.updates for segment in segments) == 5
    assert said == [source.latest().order]


def test_an_end_of_another_history_is_never_reached() -> None:
    source = filled(MemorySource())
    end = End(source)
    assert end.place is not None
    with pytest.raises(Diverged, match="is in incarnation 2 now"):
        end.reached(LogPosition(2, end.place.file, 0))


def test_the_whole_log_waits_for_its_end_and_tells_what_breaks_on_the_way() -> None:
    source = filled(MemorySource())
    assert sum(segment.updates for segment in whole_log(source)) == 5
    source.set_reachable(False)
    with pytest.raises(SourceUnavailable):
        list(whole_log(source))


# --- sources ---


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("url", "kind", "package"),
    [
        ("rocksdb:///var/lib/store", "rocksdb", "rocksdb"),
        ("mysql://u@h", "mysql", "mysql"),
        ("mariadb://u@h:3307/?tls=off", "mariadb", "mysql"),
    ],
)
def test_what_is_a_log(url: str, kind: str, package: str) -> None:
    assert source_kind(url) == kind
    assert datastore_at(url).requirement == f"wormhole-pubsub[publisher,{package}]"


@pytest.mark.parametrize(
    "url",
    ["rocksdb://host/path", "rocksdb:relative", "mysql://h/x", "/path", "", "mysql:", "oracle://h", "http://[x", "mysql://u:top secret@h/x"],  # noqa: E501
)  # fmt: skip
def test_what_names_no_log_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="names no log") as caught:
        datastore_at(url)
    assert "top secret" not in str(caught.value)


def test_a_password_that_breaks_its_url_is_told_how_to_be_written() -> None:
    with pytest.raises(UsageError, match="names no log") as caught:
        datastore_at("postgres://u:top/sec#ret@h/shop")
    assert "sec" not in str(caught.value).replace("--password", "")
    assert "--password-file; within a URL a password has %40 for @" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        datastore_at("postgres://u@h")
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("patterns", "within"),
    [
        ([], ["my [[]shop].*"]),
        (["users", "us*"], ["my [[]shop].users", "my [[]shop].us*"]),
        (["my [shop].users", "my [[]shop].*"], ["my [shop].users", "my [[]shop].*"]),
    ],
)
def test_table_patterns_within_a_database(patterns: list[str], within: list[str]) -> None:
    assert tables_within("my [shop]", patterns) == within
    assert tables_within("", patterns) == patterns


def test_a_table_of_another_database_than_the_urls_is_refused() -> None:
    for pattern in ("other.users", "*.users"):
        with pytest.raises(UsageError, match=r"'shop', .*--table '.*users' .*\[wrong-request\]"):
            tables_within("shop", ["users", pattern])


def test_the_database_of_a_url() -> None:
    assert split_database("mysql://u@h/shop?tls=off") == ("mysql://u@h/?tls=off", "shop")
    assert split_database("rocksdb:///var/lib/store") == ("rocksdb:///var/lib/store", "")
    assert split_database("oracle://h/x") == ("oracle://h/x", "")


@pytest.fixture
def without_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of a server whose driver other processes do not find."""
    (tmp_path / "pymysql.py").write_text("raise ModuleNotFoundError('No module named pymysql', name='pymysql')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    config = tmp_path / "shop.toml"
    config.write_text(
        'version = 1\ncoordinator.static = true\npublisher.state_dir = "state"\n'
        'datasets.shop.copies.main.logs.db1.source = "mysql://u@127.0.0.1"\n'
        'applications.cache = { dataset = "shop", start = "latest", subscribers.one = "127.0.0.1:7400" }\n'
    )
    return config


NEED_THE_DRIVER = (
    ["publisher", "run", "-c", "shop.toml"],
    ["tail", "mysql://u@127.0.0.1"],
    ["doctor", "mysql://u@127.0.0.1"],
    ["init", "mysql://u@127.0.0.1", "--dir", "project"],
)
ONE_AFTER_ANOTHER = """
import json, sys
from tests.support.command_line import run
print(json.dumps([run(*command) for command in json.loads(sys.argv[1])]))
"""


def test_a_driver_that_is_missing_is_named_with_the_way_to_install_it(without_driver: Path) -> None:
    commands = [["config", "check", "shop.toml"], *NEED_THE_DRIVER]
    words = [sys.executable, "-c", ONE_AFTER_ANOTHER, json.dumps(commands)]
    done = subprocess.run(words, cwd=without_driver.parent, capture_output=True, text=True, check=True)
    checked, *others = json.loads(done.stdout)
    assert checked[0] == 0, "a configuration is checked without the driver"
    for command, (code, _, err) in zip(NEED_THE_DRIVER, others, strict=True):
        assert code == WRONG, command
        assert err.splitlines() == [
            "error [extra-missing]: this command needs pymysql, which is not installed",
            "  next: pip install 'wormhole-pubsub[publisher,mysql]'",
        ]


def test_a_store_of_files_takes_no_password() -> None:
    assert login_of("rocksdb:///store", None) == Login()
    with pytest.raises(UsageError, match="no password"):
        login_of("rocksdb:///store", Path("/password"))


def test_a_password_on_the_command_line_is_warned_about_and_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    login_of("mysql://u:top%20secret@h", None)
    told = capsys.readouterr()
    assert told.err.startswith("warning: a password on the command line can be read by every user")
    assert "secret" not in told.out + told.err
    login_of("mysql://u@h", None)
    assert capsys.readouterr().err == ""


def test_only_a_person_is_asked_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "secret"

    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    login = login_of("mysql://u@h", Path("/p"))
    assert (login.password_file, login.user_files) == (Path("/p"), True)
    assert login.prompt is not None
    assert [login.prompt("Password?"), login.prompt("Password?")] == ["secret", "secret"]
    assert asked == ["Password?"]
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert login_of("mysql://u@h", None).prompt is None
