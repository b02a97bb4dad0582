"""The demo's journals: what is written is read, and a torn last line does not count."""

from __future__ import annotations

from pathlib import Path

from examples.demo.journal import Commit, Journal, Receipt, Tail, digest

COMMIT = Commit(7, 3, "users", "user-0001", digest(b"value"), 1000, 2000)
RECEIPT = Receipt("db1.0of8", 2, "1.db1:7:0", "users", "user-0001", 7, digest(b"value"), 3000)


def test_lines_read_back() -> None:
    assert Commit.parse(COMMIT.line().rstrip("\n")) == COMMIT
    assert Receipt.parse(RECEIPT.line().rstrip("\n")) == RECEIPT


def test_a_tail_follows_a_growing_file_by_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    assert tail.lines() == []
    journal = Journal(path)
    journal.write(["one\n", "two\n", "thr"])
    assert tail.lines() == ["one", "two"]
    assert tail.lines() == []
    journal.write(["ee\n"])
    assert tail.lines() == ["three"]


def test_no_value_has_a_digest_of_its_own() -> None:
    assert digest(None) == "-"
    assert digest(b"") != digest(None)
    assert digest(b"a") != digest(b"b")
