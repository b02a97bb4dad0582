"""The benchmark of peers: its arithmetic, what it accepts as a reading, and the readers that need no toolchain."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cases import BenchmarkError
from benchmarks.peers.binlog import SHAPES, filled, marks
from benchmarks.peers.builds import built
from benchmarks.peers.figures import Figures, figures, microseconds_a_row, ratio
from benchmarks.peers.measure import Run
from benchmarks.peers.outcome import Expected, Outcome
from benchmarks.peers.raw_copy import drain
from benchmarks.peers.reader import BinlogReader, Program
from benchmarks.peers.readers import DEBEZIUM_JSON, GO_JSON, OURS, RAW, TRANSPORT, every_reader
from benchmarks.peers.report import bench, verdicts
from benchmarks.peers.rounds import measured


def test_microseconds_are_of_the_rows_that_only_the_large_run_read() -> None:
    small, large = Run(1000, 0.1, 2.0), Run(2000, 0.5, 2.05)
    assert microseconds_a_row(small, large) == pytest.approx(50)
    assert figures([(small, large)]).rows_per_s == (4000,)


def test_a_ratio_is_of_the_same_round() -> None:
    assert ratio(Figures((200.0, 300.0), ()), Figures((100.0, 100.0), ())) == (2.0, 3.0)


def test_a_reading_that_misses_rows_or_values_is_no_figure() -> None:
    outcome = Outcome.parse('{"rows": 10, "seconds": 0.5, "checksum": 7}')
    outcome.check(Expected(10, 7), reads_values=True)
    with pytest.raises(BenchmarkError, match="10 rows of 11"):
        outcome.check(Expected(11, 7), reads_values=True)
    with pytest.raises(BenchmarkError, match="sum up to 7, not to 8"):
        outcome.check(Expected(10, 8), reads_values=True)
    replace(outcome, checksum=None).check(Expected(10, 8), reads_values=False)
    for line in ("", "ready", "[]", '{"rows": 1}'):
        with pytest.raises(BenchmarkError, match="no outcome"):
            Outcome.parse(line)


def test_marks_are_whole_transactions_and_twice_as_many() -> None:
    shape = replace(SHAPES[0], rows=150_000)
    assert marks(shape, [1, 4], 1.0) == [300_000, 150_000, 75_000, 37_500]
    assert marks(shape, [8], 0.0001) == [1000, 500]


def test_a_target_is_judged_by_the_median_ratio() -> None:
    ours, go = Figures((140.0, 160.0, 170.0), ()), Figures((100.0, 100.0, 100.0), ())
    assert verdicts("S1", {OURS: ours, GO_JSON: go}) == [f"S1: values read, 1.60 x {GO_JSON}; target 1.5, met"]
    assert "target 5, MISSED" in verdicts("S2", {OURS: ours, DEBEZIUM_JSON: go})[0]
    assert verdicts("S1", {OURS: ours, GO_JSON: "failed: no"}) == []


def test_a_reader_that_cannot_be_built_or_fails_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not installed" in built("none", tmp_path / "build", lambda *_: [["no-such-tool-here"]], tmp_path)
    assert "failed: broken" in built(
        "bad", tmp_path / "bad", lambda *_: [[sys.executable, "-c", "raise SystemExit('broken')"]], tmp_path
    )
    assert built("good", tmp_path / "good", lambda *_: [[sys.executable, "-c", ""]], tmp_path) == ""
    shape = replace(SHAPES[0], rows=500)
    absent = BinlogReader("absent", "nothing", lambda *_: [], missing="`go` is not installed")
    liar = json.dumps({"rows": 1000, "seconds": 1.0, "checksum": 1})
    words = (sys.executable, "-c", f"print({liar!r})")
    cheat = BinlogReader("cheat", "nothing", lambda *_: [Program(words, outcome=True)])
    with filled(shape, marks(shape, [1], 1.0)) as binlog:
        readers = bench([absent, cheat])
        found = measured(readers, shape, binlog, 1, 1.0)
    assert found["absent"] == "not built: `go` is not installed"
    assert found["cheat"] == "failed: it read 1000 rows of 500"
    readers.show(shape, readers.readers, found)
    assert "not built: `go` is not installed" in capsys.readouterr().out


def test_a_copy_ends_at_the_packet_that_ends_the_log_and_not_at_bytes_that_look_like_it(tmp_path: Path) -> None:
    end = b"\x05\0\0\x07\xfe\0\0\x02\0"
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "sink").open("wb") as sink:
        theirs.sendall(b"rows" + end + b"more rows" + end)
        assert drain(ours, sink.fileno()) >= 0
    assert (tmp_path / "sink").read_bytes() == b"rows" + end + b"more rows" + end


@pytest.mark.soak
def test_readers_without_a_toolchain_read_everything() -> None:
    shape = replace(SHAPES[0], rows=4000)
    wanted = (RAW, OURS, TRANSPORT, "mysql-replication in process")
    readers = [one for one in every_reader(Path("build/peers")) if one.name in wanted]
    assert len(readers) == len(wanted)
    with filled(shape, marks(shape, [reader.divisor for reader in readers], 1.0)) as binlog:
        found = measured(bench(readers), shape, binlog, 1, 1.0)
    assert {name: one for name, one in found.items() if isinstance(one, str)} == {}
