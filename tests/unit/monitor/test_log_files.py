"""Publishers' output is bounded, and its end says why one ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.log_files import last_error, log_file, rotate


def test_a_large_file_is_taken_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = log_file(tmp_path, "shop/main/db1")
    assert path.name == "shop.main.db1.log"
    assert not rotate(path, 10), "there is none yet"
    with path.open("a") as writer:
        writer.write("0123456789\n")
        writer.flush()
        assert not rotate(path, 11)
        assert rotate(path, 10)
        writer.write("more\n")
        writer.flush()
        assert path.read_text() == "more\n", "it goes on at the beginning, with no hole"
        writer.write("another\n")
        writer.flush()
        assert rotate(path, 10)
    assert path.read_text() == ""
    assert (tmp_path / "shop.main.db1.log.1").read_text() == "more\nanother\n", "one older file, no more"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_cannot_be_kept_is_emptied_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("0123456789")
    (tmp_path / "a.log.1").mkdir()
    with pytest.raises(OSError):
        rotate(path, 5)
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("started\nerror: a\n  next: do this\nerror: b\n  next: do that\n", "b. Next: do that"),
        ("error: c\n  next:\n    SET x = 1;\n    FLUSH BINARY LOGS;\n", "c. Next: SET x = 1; FLUSH BINARY LOGS;"),
        ("error: alone\n", "alone"),
        ('one\n{"level": "info", "message": "two"}\n', "two"),
        ('{"level": "info"}', '{"level": "info"}'),
        ("[1]", "[1]"),
        ("error: alone\nTraceback\n", "alone"),
        ("[" * 9_000, "[" * 9_000),
        ("x" * 100_000 + "\nerror: at the end\n", "at the end"),
    ],
)
def test_the_last_words_are_the_last_error_and_what_to_do(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    assert last_error(path) == words


def test_no_file_has_no_last_words(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none.log") == ""
