from __future__ import annotations

import pytest
from rich.console import Console

from wormholectl.show import printer
from wormholectl.show.printer import (
    next_step_lines,
    print_json,
    print_line,
    print_progress,
    print_table,
    print_text,
    say_waiting,
    size,
    span,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (200 << 10, "200 KiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.94, "9.9s"), (59.4, "59s"), (200, "3m 20s"), (7200, "2h 0m"), (90_000, "1d 1h")],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        ("read the log", ["next: read the log"]),
        ("GRANT x TO y;", ["next:", "  GRANT x TO y;"]),
        ("SET a = 1;\nFLUSH b;\nor wait", ["next:", "  SET a = 1;", "  FLUSH b;", "  or wait"]),
    ],
)
def test_a_statement_to_paste_has_a_line_of_its_own(step: str, lines: list[str]) -> None:
    assert next_step_lines(step) == lines


def test_a_pipe_gets_plain_lines_of_any_length(capsys: pytest.CaptureFixture[str]) -> None:
    print_line([("x" * 300, "bold red"), (" [not markup]", "")])
    print_json({"é": 1})
    print_table(["A", "LONG NAME"], [["1", "y" * 200], ["22", ""]], "none")
    print_table(["A"], [], "none")
    assert capsys.readouterr().out == (
        "x" * 300 + ' [not markup]\n{"schema": 1, "é": 1}\nA   LONG NAME\n1   ' + "y" * 200 + "\n22\nnone\n"
    )


def test_a_table_wider_than_the_terminal_is_shown_in_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(printer, "_console", lambda: Console(highlight=False, width=30, color_system=None))
    row = ["cache/db1", "live", "", "1/2/30 and more", "gone"]
    print_table(["FLOW", "STATE", "CARAVAN", "PLACE", "CAUSE"], [row, ["b", "held", "", "", ""]], "none")
    assert capsys.readouterr().out == (
        "cache/db1\n  STATE live\n  PLACE 1/2/30 and more\n  CAUSE gone\nb\n  STATE held\n"
    )
    print_table(["FLOW", "STATE"], [row[:2]], "none")
    assert capsys.readouterr().out.splitlines()[1].split() == ["cache/db1", "live"]


def test_figures_end_at_the_same_place_and_no_width_cuts_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ["CASE", "UPDATES/S", "READ", "SPREAD", "PLACE"]
    rows = [
        ["small", "1,202,000", "5 B", "8.0 (x 0.8)", "1/2/30"],
        ["large", "999", "1.5 MiB", "28.0 (x 0.9)", "1/2/3"],
        ["none", "-", "", "", ""],
    ]
    print_table(columns, rows, "", title="Throughput")
    assert capsys.readouterr().out.splitlines() == [
        "Throughput",
        "CASE   UPDATES/S     READ        SPREAD  PLACE",
        "small  1,202,000      5 B   8.0 (x 0.8)  1/2/30",
        "large        999  1.5 MiB  28.0 (x 0.9)  1/2/3",
        "none           -",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for width in range(10, 60):
        monkeypatch.setattr(printer, "_console", lambda width=width: Console(width=width, color_system=None))
        print_table(columns, rows, "")
        shown = capsys.readouterr().out
        assert all(cell in shown for row in rows for cell in row)


def test_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_line([("[x]", "bold"), ("y", "")])
    print_table(["A", "B"], [["[x]", "y"]], "none")
    lines = capsys.readouterr().out.splitlines()
    assert "[x]" in lines[0]
    assert "[x]" in lines[-1]


def test_what_takes_long_is_said_to_a_person_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say_waiting("starting Spark")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    say_waiting("starting Spark")
    assert capsys.readouterr() == ("", "starting Spark\n")


ATTACK = "\x1b]0;owned\x07\nerror: all is lost\x9b2J\u202e"


def test_what_a_peer_wrote_reaches_no_terminal_raw(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda answer=terminal: answer)
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=terminal: answer)
        monkeypatch.setattr(printer, "_console", lambda: Console(highlight=False, width=200, color_system=None))
        print_line([(ATTACK, "")])
        print_text(ATTACK)
        print_text(ATTACK, error=True)
        print_table(["NAME"], [[ATTACK]], "none")
        print_table([], [], ATTACK)
        print_json({"name": ATTACK})
        say_waiting(ATTACK)
        print_progress(ATTACK)
    shown = capsys.readouterr()
    text = (shown.out + shown.err).replace("\r\x1b[K", "")
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert not any(line.startswith("error:") for line in text.splitlines())


def test_columns_that_a_narrow_terminal_can_spare_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    columns, row = ("FLOW", "PLACE", "EPOCH", "CAUSE"), ("cache/db1", "p" * 30, "7", "it is held")

    def printed(width: int) -> list[str]:
        monkeypatch.setattr(printer, "_console", lambda: Console(width=width, force_terminal=False))
        printer.print_table(columns, [row], "none", spare=("EPOCH", "PLACE"))
        return capsys.readouterr().out.splitlines()

    assert printed(100)[0].split() == [*columns]
    head, _, note = printed(54)
    assert (head.split(), "EPOCH;" in note) == (["FLOW", "PLACE", "CAUSE"], True)
    head, _, note = printed(40)
    assert (head.split(), "EPOCH, PLACE;" in note) == (["FLOW", "CAUSE"], True)
    assert "EPOCH 7" in " ".join(printed(15)), "all of them, in a block"
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert [line.split()[:3] for line in printed(15)] == [["FLOW", "PLACE", "EPOCH"], [*row[:3]]], "a pipe gets all"
