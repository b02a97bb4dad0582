"""The checker of the system tests sees every kind of fault; forked processes are like started ones."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from scripts.prepare import ROOT
from tests.system.harness.checker import Checker, fenced_state, owners_in_turn
from tests.system.harness.logs import Assigned, Entry, Lines, Marker, Received, Revoked, line_of, parse
from tests.system.harness.processes import Process
from tests.system.harness.truth import Commit, Content, Journal, by_hash, by_table, digest

# --- checker ---


def change(key: str, value: str = "1:x", table: str = "t") -> Content:
    return Content("upsert", table, key, value)


COMMITS = [
    Commit(0, 1, (change("a"),)),
    Commit(1, 2, (change("b"), change("c"), change("d"))),
    Commit(2, 5, (change("a", "1:y"),)),
]
ALL = [(1, 0, True), (2, 0, False), (2, 1, False), (2, 2, True), (5, 0, True)]


def test_a_server_numbers_transactions_and_rocksdb_changes() -> None:
    lines = ['["i", 0, 7, [["insert", "t", "61", "1:x"], ["insert", "t", "62", "1:x"]]]', '["ok", 0]']
    (numbered_changes,) = Journal().read(lines)
    (numbered_transactions,) = Journal(step=0).read(lines)
    assert (numbered_changes.last, numbered_transactions.last) == (8, 7)
    checker = Checker("a", by_table("l"), base=6)
    checker.commit(numbered_transactions)
    checker.told("p", Assigned(0.0, "l.t", 1, "1/1/0", 3, "p"))  # CREATE TABLE was a transaction too
    for index, key in enumerate(("61", "62")):
        content = Content("insert", "t", key, "1:x")
        checker.told("p", Received(0.0, "l.t", 1, 7, index, index == 1, "1/1/9", "now", False, content))
    checker.told("p", Marker(0.0, "l.t", 1, "1/1/9", 7))
    assert checker.check() == []
    assert checker.reached_until(7)
    checker.told("p", Marker(0.0, "l.t", 1, "1/1/9", 8))
    assert "INSIDE" in checker.check()[0]


@pytest.mark.parametrize(
    ("delivered", "number"),
    [("", 0), ("42", 42), ("0-1-17", 17), ("0-2-18", 18), ("c5fa8ed6-e5cf-11f1-8a51-02fc00000001:1-665", 665)],
)
def test_what_was_delivered_is_a_number(delivered: str, number: int) -> None:
    entry = parse(f"M\t1.0\tl.t\t1\t1/1/0\t{delivered}")
    assert isinstance(entry, Marker)
    assert entry.delivered == number


def test_a_hole_in_what_was_delivered_is_noticed() -> None:
    with pytest.raises(AssertionError, match="not everything"):
        parse("M\t1.0\tl.t\t1\t1/1/0\tc5fa8ed6-e5cf-11f1-8a51-02fc00000001:1-5:7-9")


def received(nth: int, epoch: int = 1, at: float = 0.0, **other: object) -> Received:
    sequence, index, ends = ALL[nth]
    content = next(c for c in COMMITS if c.sequence == sequence).changes[index]
    entry = Received(at, "l.t", epoch, sequence, index, ends, f"1/1/{sequence}", "now", False, content)
    for name, value in other.items():
        setattr(entry, name, value)
    return entry


def assigned(epoch: int = 1, delivered: int = 0) -> Assigned:
    return Assigned(0.0, "l.t", epoch, "1/1/0", delivered, "p")


def marker(delivered: int, epoch: int = 1) -> Marker:
    return Marker(0.0, "l.t", epoch, "1/1/0", delivered)


def checked(*entries: tuple[str, Entry]) -> Checker:
    checker = Checker("app", by_table("l"))
    for commit in COMMITS:
        checker.commit(commit)
    for process, entry in entries:
        checker.told(process, entry)
    return checker


def one(*entries: Entry) -> Checker:
    return checked(*(("p1", entry) for entry in entries))


def everything(epoch: int = 1, start: int = 0) -> list[Received]:
    return [received(n, epoch) for n in range(start, len(ALL))]


def test_all_in_order_is_right() -> None:
    checker = one(assigned(), *everything(), marker(5))
    assert checker.check() == []
    assert checker.reached()
    assert checker.reached_until(5)
    figures = checker.figures()
    assert (figures.updates, figures.duplicates, figures.missing, figures.epochs) == (5, 0, 0, 1)


def test_a_repeated_suffix_is_allowed_and_counted() -> None:
    checker = checked(
        ("p1", assigned()),
        *(("p1", received(n)) for n in range(4)),
        ("p2", assigned(2, 1)),
        *(("p2", entry) for entry in everything(2, 1)),
    )
    assert checker.check() == []
    assert (checker.figures().updates, checker.figures().duplicates) == (5, 3)


def test_what_has_not_come_yet_is_missing_but_no_problem() -> None:
    checker = one(assigned(), received(0))
    assert checker.check() == []
    assert not checker.reached()
    assert checker.reached_until(1)
    assert not checker.reached_until(2)
    assert checker.behind() == {"l.t": 4}


@pytest.mark.parametrize(
    ("word", "entries"),
    [
        ("SKIPPED", [assigned(), received(0), received(2)]),
        ("AGAIN", [assigned(), received(0), received(0)]),
        ("AGAIN", [assigned(), received(1), received(0)]),
        ("LOST", [assigned(), received(0), Revoked(0.0, "l.t", 1, ""), assigned(2, 4), received(4, 2)]),
        ("EPOCH FELL", [assigned(2), Revoked(0.0, "l.t", 2, ""), assigned(1)]),
        ("OVERLAP", [assigned(1), assigned(2)]),
        ("WRONG EPOCH", [assigned(2), received(0, 1)]),
        ("WRONG EPOCH", [assigned(1), Revoked(0.0, "l.t", 1, ""), received(0, 1)]),
        ("NOT ASSIGNED", [received(0)]),
        ("INVENTED", [assigned(), received(0, sequence=9)]),
        ("CHANGED", [assigned(), received(0, content=change("a", "1:other"))]),
        ("TRANSACTION", [assigned(), received(0, ends=False)]),
        ("TRANSACTION", [assigned(), received(0), received(1, ends=True)]),
        ("INSIDE", [assigned(), received(0), marker(2)]),
        ("INSIDE", [assigned(1, 3)]),
        ("AHEAD", [assigned(), received(0), marker(4)]),
        ("BACK", [assigned(), *everything(), marker(5), marker(4)]),
        (
            "UNLIKE",
            [assigned(), received(0), Revoked(0.0, "l.t", 1, ""), assigned(2), received(0, 2, committed_at="then")],
        ),
    ],
)
def test_every_fault_is_seen(word: str, entries: list[Entry]) -> None:
    found = one(*entries).check()
    assert any(word in problem for problem in found), found


@pytest.mark.parametrize(
    ("size", "places", "word"),
    [
        (41_000, ["1/1/9", "1/1/9"], ""),
        (41_000, ["1/1/4", "1/1/9"], "UNLIKE"),
        (42_000, ["1/1/4", "1/1/9"], ""),  # caravan.speeds.Pace.LEAST makes reads of 41,943 bytes
        (42_000, ["1/1/4", "1/1/9", "1/1/9", "1/1/4"], ""),
        (42_000, ["1/1/4", "1/1/9", "1/1/7"], "UNLIKE"),
    ],
)
def test_only_a_large_transaction_has_two_places(size: int, places: list[str], word: str) -> None:
    checker = Checker("app", by_table("l"))
    content = change("a", f"{size}:x")
    checker.commit(Commit(0, 1, (content,)))
    for epoch, place in enumerate(places, 1):
        checker.told(f"p{epoch}", assigned(epoch))
        checker.told(f"p{epoch}", Received(0.0, "l.t", epoch, 1, 0, True, place, "now", False, content))
    assert [problem.partition(":")[0] for problem in checker.check()] == [word] * bool(word)


def test_another_copy_has_other_places() -> None:
    checker = Checker("app", by_table("l"))
    checker.same_places = False
    checker.commit(COMMITS[0])
    assert checker.ends() == {"l.t": 1}
    for epoch, place in enumerate(("1/1/9", "2/1/4"), 1):
        checker.told(f"p{epoch}", assigned(epoch))
        checker.told(f"p{epoch}", Received(0.0, "l.t", epoch, 1, 0, True, place, "now", False, COMMITS[0].changes[0]))
    assert checker.check() == []


def test_the_end_of_a_large_transaction_is_checked_too() -> None:
    checker = Checker("app", by_table("l"))
    content = change("a", "99000:x")
    checker.commit(Commit(0, 1, (content,)))
    checker.told("p", assigned())
    checker.told("p", Received(0.0, "l.t", 1, 1, 0, False, "1/1/9", "now", False, content))
    assert "TRANSACTION" in checker.check()[0]


def test_one_epoch_at_two_processes_is_seen() -> None:
    (problem,) = checked(("p1", assigned()), ("p2", assigned())).check()
    assert "TWO OWNERS" in problem


def test_a_filter_leaves_out_what_is_not_wanted() -> None:
    checker = Checker("app", by_table("l"), lambda content: content.key != "d")
    for commit in COMMITS:
        checker.commit(commit)
    ending = received(2, ends=True)
    for entry in (assigned(), received(0), received(1), ending, received(4), marker(5)):
        checker.told("p1", entry)
    assert checker.check() == []
    assert checker.reached()


def test_state_goes_by_time_and_the_epoch_fences() -> None:
    late = received(0, at=3.0)
    assert fenced_state([late, received(4, at=2.0)]) == ({("t", "a"): "1:x"}, 0)
    gone = received(0, at=4.0, content=Content("delete", "t", "a", ""))
    assert fenced_state([late, gone]) == ({}, 0)
    assert fenced_state([received(4, 2, at=2.0), late]) == ({("t", "a"): "1:y"}, 1)


def test_hash_shards_are_the_documented_ones() -> None:
    assert by_hash("l", 4)(change(b"key-0001".hex())) == "l.2of4"


def test_the_journal_knows_the_truth_when_the_writer_dies() -> None:
    journal = Journal()
    intent = '["i",0,1,[["upsert","t","61","1:x"]]]'
    assert journal.read([intent]) == []
    assert journal.open is not None
    assert [commit.sequence for commit in journal.read(['["ok",0]', intent.replace("0,1", "1,2")])] == [1]
    assert journal.read(['["no",1]']) == []
    assert journal.state() == {("t", "61"): "1:x"}
    journal.read(['["i",1,2,[["delete","t","61",""]]]', '["ok",1]'])
    assert journal.state() == {}
    with pytest.raises(AssertionError, match="says"):
        journal.read(['["ok",7]'])
    with pytest.raises(AssertionError, match="never says"):
        journal.read([intent, intent])


def test_a_line_that_a_kill_cut_in_two_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = Lines(path)
    assert list(lines.new()) == []
    path.write_bytes(line_of("R", 1.0, "l.t", 2, "why") + b"U\t3.0\tl.t")
    (line,) = lines.new()
    assert parse(line) == Revoked(1.0, "l.t", 2, "why")
    assert list(lines.new()) == []


def test_lines_come_back_as_they_went() -> None:
    update = ("U", 1.5, "l.t", 2, 7, 1, 1, "1/1/9", "now", 0, "delete", "t", "61", "")
    assert parse(line_of(*update).decode()) == Received(
        1.5, "l.t", 2, 7, 1, True, "1/1/9", "now", False, Content("delete", "t", "61", "")
    )
    assert parse(line_of("M", 1.0, "l.t", 2, "1/1/9", 7).decode()) == Marker(1.0, "l.t", 2, "1/1/9", 7)
    with pytest.raises(AssertionError, match="wrote"):
        parse("X\t1.0\tl.t\t2")


@pytest.mark.parametrize(
    ("owners", "wrong"),
    [
        ([(1, "p"), (2, "p"), (3, "q"), (5, "r")], ""),
        ([(3, "q"), (1, "p"), (2, "p")], ""),
        ([(1, "p"), (2, "q"), (2, "r")], "TWO PUBLISHERS: epoch 2"),
        ([(1, "p"), (2, "q"), (3, "p")], "CAME BACK: p assigned epoch 3"),
    ],
)
def test_publishers_of_a_flow_take_turns_and_do_not_come_back(owners: list[tuple[int, str]], wrong: str) -> None:
    found = "\n".join(owners_in_turn("cache/l.t", owners))
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


def test_where_hosts_take_over_from_each_other_a_publisher_may_come_back() -> None:
    owners = [(1, "p"), (2, "q"), (3, "p")]
    assert owners_in_turn("cache/l.t", owners, may_return=True) == []
    assert owners_in_turn("cache/l.t", [*owners, (3, "q")], may_return=True)


def test_digests_tell_length_and_content() -> None:
    assert digest(b"a") != digest(b"b")
    assert digest(b"a").startswith("1:")


# --- forked: A process of the harness that is forked is as one that the interpreter starts ---


_TELLS = (
    "import json, os, sys, threading; "
    "print(json.dumps([sys.argv, __name__, os.getcwd(), sorted(os.environ), sorted(os.listdir('/proc/self/fd')), "
    "threading.active_count(), sys.stdin.readline()])); "
    "raise SystemExit(int(sys.argv[1]))"
)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "forked"])
def test_it_has_its_arguments_its_environment_and_its_pipes_and_nothing_else(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN", "yes")
    process = Process("one", ["-c", _TELLS, "3", "more"], tmp_path, talks=True, whole=whole)
    process.start()
    process.say("a line")
    argv, name, folder, environment, descriptors, threads, line = json.loads(process.hear())
    assert argv == ["-c", "3", "more"]
    assert (name, folder, line, threads) == ("__main__", str(ROOT), "a line\n", 1)
    assert environment == sorted({*os.environ, "PYTHONPATH", "PYTHONUNBUFFERED", "WORMHOLE_DEBUG"})
    assert len(descriptors) == 4, "three, and the folder that is listed"
    assert process.hear() == "", "nobody else has the pipe"
    assert process.wait() == 3


def test_a_module_and_what_it_says_of_its_end(tmp_path: Path) -> None:
    process = Process("one", ["-m", "tests.system.harness.none"], tmp_path)
    process.start()
    assert process.wait() == 1
    assert "No module named tests.system.harness.none" in process.tail()


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "forked"])
def test_signals_reach_it(whole: bool, tmp_path: Path) -> None:
    process = Process("one", ["-c", "print('here', flush=True); input()"], tmp_path, talks=True, whole=whole)
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.start()
        assert process.hear() == "here\n"
        assert process.alive
        assert not process.ended
        process.signal(number)
        assert process.wait() == -number
        assert not process.alive
    process.start()
    assert process.hear() == "here\n"  # before that a signal may reach the forked process while it is still set up
    assert process.stop() == -signal.SIGTERM
    process.start()
    process.kill()
