from __future__ import annotations

from pathlib import Path

import pytest

from publisher.sources.mysql.doubts import Doubts
from publisher.sources.mysql.high_water import HighWater
from publisher.sources.mysql.histories import Histories, Lost, same_file
from publisher.sources.mysql.view import View
from wormhole.model.errors import Diverged, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition


def view(server: str, *files: int) -> View:
    return View(server, 1, "binlog", tuple((n, 1000) for n in files), (files[-1], 500), "")


def marker(incarnation: int) -> Datamarker:
    place = LogPosition(incarnation, 3, 4)
    return Datamarker(place, "", place)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "histories.json"


def test_one_server_is_one_history_also_after_a_restart(path: Path) -> None:
    histories = Histories(path)
    assert histories.current == 0
    assert histories.observe(view("a", 3, 4)) == 1
    assert histories.observe(view("a", 4, 5, 6)) == 1
    assert Histories(path).observe(view("a", 6)) == 1
    assert Histories(path).current == 1


def test_another_server_begins_the_next_and_gtids_may_lead_there(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3))
    assert histories.observe(view("b", 9)) == 2
    histories.check_way(marker(1))
    # Back on the first, which went on meanwhile.
    assert histories.observe(view("a", 4)) == 3
    histories.check_way(marker(1))
    histories.check_way(marker(2))


@pytest.mark.parametrize("while_away", [False, True])
def test_a_log_that_began_anew_is_another_history_without_a_way(path: Path, while_away: bool) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3, 4))
    if while_away:
        histories.observe(view("b", 9))
    now = histories.observe(view("a", 1))
    assert now == (3 if while_away else 2)
    with pytest.raises(Diverged) as error:
        Histories(path).check_way(marker(1))
    assert error.value.hint
    if while_away:
        histories.check_way(marker(2))


def test_a_log_that_ends_before_what_was_seen_began_anew(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 4))
    assert histories.observe(view("a", 4), LogPosition(1, 4, 500)) == 1
    assert histories.observe(view("a", 4), LogPosition(1, 4, 501)) == 2
    with pytest.raises(Diverged):
        histories.check_way(marker(1))


def test_a_file_that_is_another_than_before(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3, 4))
    assert not histories.knows_file(4)
    histories.check_file(1, 4, "1700000000-1")
    histories.check_file(1, 4, "1700000000-1")
    again = Histories(path)
    assert again.knows_file(4)
    with pytest.raises(Diverged, match="file 4"):
        again.check_file(1, 4, "1700000009-1")
    assert again.current == 2
    assert again.knows_file(4)
    again.check_file(2, 4, "1700000009-1")
    with pytest.raises(
        SourceUnavailable, match="incarnation 2"
    ):  # a reader of before: it is opened anew, and that decides
        again.check_file(1, 5, "1700000010-1")
    with pytest.raises(Diverged):
        again.check_way(marker(1))


def test_a_view_that_is_older_than_what_a_reader_saw_is_no_other_history(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3, 4))
    asked = histories.reached
    histories.check_file(1, 5, "1700000000-1")
    assert histories.observe(view("a", 3, 4), asked) == 1
    assert histories.reached == LogPosition(1, 5, 0)
    assert histories.observe(view("a", 3, 4), histories.reached) == 2
    # Nor is one that was asked for before another history began.
    assert histories.observe(view("a", 3), asked) == 2


def test_a_history_that_was_never_seen_here(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3))
    with pytest.raises(Diverged, match="never seen") as error:
        histories.check_way(marker(2))
    assert "state_dir" in (error.value.hint or "")


def test_a_state_that_cannot_be_written_is_said(path: Path) -> None:
    histories = Histories(path.parent / "missing" / "histories.json")
    with pytest.raises(SourceUnavailable, match="cannot be written") as error:
        histories.observe(view("a", 3))
    assert error.value.hint


def test_a_log_that_cannot_be_shown_to_be_the_same_is_another_history(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3, 4))
    assert not histories.unproven
    assert histories.observe(view("a", 6), None, Lost("none is left", unproven=True)) == 2
    again = Histories(path)
    assert again.unproven
    place = LogPosition(1, 3, 4)
    with pytest.raises(Diverged, match="none is left") as error:
        again.check_way(Datamarker(place, "0-1-7", place))
    assert "wormholectl flows accept-loss APP/SHARD" in str(error.value.hint)
    assert "wormholectl markers set APP/SHARD 0-1-7" in str(error.value.hint)


def test_a_server_that_comes_back_keeps_its_files_unless_its_log_is_another(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3, 4))
    histories.check_file(1, 4, "100-1-aa")
    histories.observe(view("b", 9))
    assert not histories.knows_file(4)
    assert histories.observe(view("a", 4, 5)) == 3
    assert histories.knows_file(4)
    histories.observe(view("b", 9))
    assert histories.observe(view("a", 4, 5), None, Lost("restored")) == 5
    assert not histories.knows_file(4)
    for number in (1, 3):
        with pytest.raises(Diverged, match="restored"):
            histories.check_way(marker(number))
    histories.check_way(marker(2))


@pytest.mark.parametrize("change", ["server", "end", "file"])
def test_one_answer_does_not_begin_another_history(path: Path, change: str) -> None:
    histories, doubts = Histories(path), Doubts()
    histories.observe(view("a", 3, 4))
    histories.check_file(1, 4, "100-1")

    def answer() -> None:
        believe = doubts.by(object())
        if change == "file":
            histories.check_file(1, 4, "200-1", believe)
        else:
            there = view("b", 4) if change == "server" else view("a", 3)
            histories.observe(there, believe=believe)

    with pytest.raises(SourceUnavailable):
        answer()
    assert (histories.current, Histories(path).current) == (1, 1)
    if change == "file":
        with pytest.raises(Diverged):
            answer()
    else:
        answer()
    assert histories.current == 2


def test_a_fingerprint_of_an_earlier_release_is_completed(path: Path) -> None:
    histories = Histories(path)
    histories.observe(view("a", 3, 4))
    histories.check_file(1, 4, "100-1")
    histories.check_file(1, 4, "100-1-aa")
    known = Histories(path).known("a")
    assert known is not None
    assert known.files == {4: "100-1-aa"}
    histories.check_file(1, 4, "100-1")
    with pytest.raises(Diverged):
        histories.check_file(1, 4, "100-1-bb")
    assert same_file("100-1", "100-1-aa")
    assert not same_file("100-1", "100-12")


def test_how_many_histories_are_kept_is_bounded(path: Path) -> None:
    histories = Histories(path)
    for n in range(300):
        histories.observe(view(f"server {n}", 4))
    assert histories.current == 300
    assert path.stat().st_size < 100_000


def test_how_far_each_incarnation_was_read_is_kept(path: Path) -> None:
    high_water = HighWater(path.with_name("read.bin"))
    histories = Histories(path, high_water)
    histories.observe(view("a", 3))
    place = LogPosition(1, 3, 700)
    high_water.rise(Datamarker(place, "0-1-7", place))
    assert histories.read_since(1) == []
    # The process ends here; the next one meets another server.
    histories = Histories(path, HighWater(path.with_name("read.bin")))
    histories.observe(view("b", 9))
    assert Histories(path).read_since(1) == [(1, "0-1-7")]
    histories.observe(view("c", 9))  # nothing was read of b
    assert histories.read_since(1) == [(1, "0-1-7")]
    assert histories.read_since(2) == []


@pytest.mark.parametrize(("offset", "resume"), [(600, "2/3/600"), (601, "")])
def test_a_log_that_lost_its_end_is_the_same_up_to_there(path: Path, offset: int, resume: str) -> None:
    high_water = HighWater(path.with_name("read.bin"))
    histories = Histories(path, high_water)
    histories.observe(view("a", 3))
    histories.check_file(1, 3, "100-1-aa")
    read = LogPosition(1, 3, 700)
    high_water.rise(Datamarker(read, "0-1-7", read))
    histories.observe(view("a", 4), None, Lost("cut", shared=LogPosition(1, 3, 600)))
    assert histories.knows_file(3)
    place = LogPosition(1, 3, offset)
    with pytest.raises(Diverged, match="cut") as error:
        Histories(path).check_way(Datamarker(place, "0-1-6", place))
    assert error.value.resume == resume
    assert error.value.last_missing == ("0-1-7" if resume else "")
    assert "accept-loss" in str(error.value.hint)
