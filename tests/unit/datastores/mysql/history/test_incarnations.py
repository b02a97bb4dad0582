from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.common.high_water import HighWater
from datastores.mysql.history.confirmation import Confirmation
from datastores.mysql.history.incarnations import Incarnations, Lost, same_file
from datastores.mysql.server.state import ServerState
from tests.support.eventually import PATIENCE_S
from tests.support.given import given
from tests.support.hosts_state import HostsState
from wormhole.host.state_file import FolderState
from wormhole.model.errors import CoordinationLost, Diverged, MarkerStoreError, SourceUnavailable
from wormhole.model.position import Datamarker, LogPosition


def view(server: str, *files: int) -> ServerState:
    return ServerState(server, 1, "binlog", tuple((n, 1000) for n in files), (files[-1], 500), "")


def marker(incarnation: int) -> Datamarker:
    place = LogPosition(incarnation, 3, 4)
    return Datamarker(place, "", place)


@pytest.fixture
def folder(tmp_path: Path) -> FolderState:
    return FolderState(tmp_path)


@pytest.fixture
def incarnations(folder: FolderState) -> Incarnations:
    """Those of a server whose files 3 and 4 were seen."""
    made = Incarnations(folder)
    made.observe(view("a", 3, 4))
    return made


def test_one_server_is_one_history_also_after_a_restart(folder: FolderState) -> None:
    incarnations = Incarnations(folder)
    assert incarnations.current == 0
    assert incarnations.observe(view("a", 3, 4)) == 1
    assert incarnations.observe(view("a", 4, 5, 6)) == 1
    assert Incarnations(folder).observe(view("a", 6)) == 1
    assert Incarnations(folder).current == 1


def test_another_server_begins_the_next_and_gtids_may_lead_there(folder: FolderState) -> None:
    incarnations = Incarnations(folder)
    incarnations.observe(view("a", 3))
    assert incarnations.observe(view("b", 9)) == 2
    incarnations.check_way(marker(1))
    # Back on the first, which went on meanwhile.
    assert incarnations.observe(view("a", 4)) == 3
    incarnations.check_way(marker(1))
    incarnations.check_way(marker(2))


@pytest.mark.parametrize("while_away", [False, True])
def test_a_log_that_began_anew_is_another_history_without_a_way(
    folder: FolderState, incarnations: Incarnations, while_away: bool
) -> None:
    if while_away:
        incarnations.observe(view("b", 9))
    assert incarnations.observe(view("a", 1)) == (3 if while_away else 2)
    with pytest.raises(Diverged) as error:
        Incarnations(folder).check_way(marker(1))
    assert error.value.hint
    if while_away:
        incarnations.check_way(marker(2))


def test_a_log_that_ends_before_what_was_seen_began_anew(folder: FolderState) -> None:
    incarnations = Incarnations(folder)
    incarnations.observe(view("a", 4))
    assert incarnations.observe(view("a", 4), LogPosition(1, 4, 500)) == 1
    assert incarnations.observe(view("a", 4), LogPosition(1, 4, 501)) == 2
    with pytest.raises(Diverged):
        incarnations.check_way(marker(1))


def test_a_file_that_is_another_than_before(folder: FolderState, incarnations: Incarnations) -> None:
    assert not incarnations.knows_file(4)
    incarnations.check_file(1, 4, "1700000000-1")
    incarnations.check_file(1, 4, "1700000000-1")
    again = Incarnations(folder)
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


def test_a_view_that_is_older_than_what_a_reader_saw_is_no_other_history(incarnations: Incarnations) -> None:
    asked = incarnations.reached
    incarnations.check_file(1, 5, "1700000000-1")
    assert incarnations.observe(view("a", 3, 4), asked) == 1
    assert incarnations.reached == LogPosition(1, 5, 0)
    assert incarnations.observe(view("a", 3, 4), incarnations.reached) == 2
    # Nor is one that was asked for before another history began.
    assert incarnations.observe(view("a", 3), asked) == 2


def test_a_history_that_was_never_seen_here(folder: FolderState) -> None:
    incarnations = Incarnations(folder)
    incarnations.observe(view("a", 3))
    with pytest.raises(Diverged, match="never seen") as error:
        incarnations.check_way(marker(2))
    assert f"servers is in {folder}: bring back" in (error.value.hint or "")


def test_a_state_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    incarnations = Incarnations(FolderState(tmp_path / "missing"))
    with pytest.raises(SourceUnavailable, match="cannot be written") as error:
        incarnations.observe(view("a", 3))
    assert error.value.hint


def test_a_log_that_cannot_be_shown_to_be_the_same_is_another_history(
    folder: FolderState, incarnations: Incarnations
) -> None:
    assert not incarnations.unproven
    assert incarnations.observe(view("a", 6), None, Lost("none is left", unproven=True)) == 2
    again = Incarnations(folder)
    assert again.unproven
    place = LogPosition(1, 3, 4)
    with pytest.raises(Diverged, match="none is left") as error:
        again.check_way(Datamarker(place, "0-1-7", place))
    assert "wormholectl flows accept-loss APP/SHARD" in str(error.value.hint)
    assert "wormholectl markers set APP/SHARD 0-1-7" in str(error.value.hint)


def test_a_server_that_comes_back_keeps_its_files_unless_its_log_is_another(incarnations: Incarnations) -> None:
    incarnations.check_file(1, 4, "100-1-aa")
    incarnations.observe(view("b", 9))
    assert not incarnations.knows_file(4)
    assert incarnations.observe(view("a", 4, 5)) == 3
    assert incarnations.knows_file(4)
    incarnations.observe(view("b", 9))
    assert incarnations.observe(view("a", 4, 5), None, Lost("restored")) == 5
    assert not incarnations.knows_file(4)
    for number in (1, 3):
        with pytest.raises(Diverged, match="restored"):
            incarnations.check_way(marker(number))
    incarnations.check_way(marker(2))


@pytest.mark.parametrize("change", ["server", "end", "file"])
def test_one_answer_does_not_begin_another_history(folder: FolderState, change: str) -> None:
    incarnations, confirmation = Incarnations(folder), Confirmation()
    incarnations.observe(view("a", 3, 4))
    incarnations.check_file(1, 4, "100-1")

    def answer() -> None:
        believe = confirmation.by(object())
        if change == "file":
            incarnations.check_file(1, 4, "200-1", believe)
        else:
            there = view("b", 4) if change == "server" else view("a", 3)
            incarnations.observe(there, believe=believe)

    with pytest.raises(SourceUnavailable):
        answer()
    assert (incarnations.current, Incarnations(folder).current) == (1, 1)
    if change == "file":
        with pytest.raises(Diverged):
            answer()
    else:
        answer()
    assert incarnations.current == 2


def test_a_fingerprint_of_an_earlier_release_is_completed(folder: FolderState, incarnations: Incarnations) -> None:
    incarnations.check_file(1, 4, "100-1")
    incarnations.check_file(1, 4, "100-1-aa")
    assert given(Incarnations(folder).known("a")).files == {4: "100-1-aa"}
    incarnations.check_file(1, 4, "100-1")
    with pytest.raises(Diverged):
        incarnations.check_file(1, 4, "100-1-bb")
    assert same_file("100-1", "100-1-aa")
    assert not same_file("100-1", "100-12")


def test_how_many_histories_are_kept_is_bounded() -> None:
    state = HostsState()
    incarnations = Incarnations(state)
    for n in range(300):
        incarnations.observe(view(f"server {n}", 4))
    assert incarnations.current == 300
    assert len(state.documents["histories"]) < 100_000


def test_how_far_each_incarnation_was_read_is_kept(folder: FolderState, tmp_path: Path) -> None:
    high_water = HighWater(tmp_path / "read.bin")
    incarnations = Incarnations(folder, high_water)
    incarnations.observe(view("a", 3))
    place = LogPosition(1, 3, 700)
    high_water.rise(Datamarker(place, "0-1-7", place))
    assert incarnations.read_since(1) == []
    # The process ends here; the next one meets another server.
    incarnations = Incarnations(folder, HighWater(tmp_path / "read.bin"))
    incarnations.observe(view("b", 9))
    assert Incarnations(folder).read_since(1) == [(1, "0-1-7")]
    incarnations.observe(view("c", 9))  # nothing was read of b
    assert incarnations.read_since(1) == [(1, "0-1-7")]
    assert incarnations.read_since(2) == []


def test_what_a_server_had_executed_when_its_incarnation_began_is_kept(folder: FolderState) -> None:
    incarnations = Incarnations(folder)
    incarnations.observe(replace(view("a", 3), state="0-1-7"))
    incarnations.observe(replace(view("a", 4), state="0-1-9"))
    incarnations.observe(replace(view("b", 9), state="0-1-8,0-2-4"))
    incarnations.observe(view("c", 9))
    kept = Incarnations(folder)
    assert [kept.begun_with(number) for number in (1, 2, 3, 4)] == ["0-1-7", "0-1-8,0-2-4", "", ""]


@pytest.mark.parametrize(("offset", "resume"), [(600, "2/3/600"), (601, "")])
def test_a_log_that_lost_its_end_is_the_same_up_to_there(
    folder: FolderState, tmp_path: Path, offset: int, resume: str
) -> None:
    high_water = HighWater(tmp_path / "read.bin")
    incarnations = Incarnations(folder, high_water)
    incarnations.observe(view("a", 3))
    incarnations.check_file(1, 3, "100-1-aa")
    read = LogPosition(1, 3, 700)
    high_water.rise(Datamarker(read, "0-1-7", read))
    incarnations.observe(view("a", 4), None, Lost("cut", shared=LogPosition(1, 3, 600)))
    assert incarnations.knows_file(3)
    place = LogPosition(1, 3, offset)
    with pytest.raises(Diverged, match="cut") as error:
        Incarnations(folder).check_way(Datamarker(place, "0-1-6", place))
    assert error.value.resume == resume
    assert error.value.last_missing == ("0-1-7" if resume else "")
    assert "accept-loss" in str(error.value.hint)


class TestHosts:
    """Publishers of several hosts, of which one owns the log at a time."""

    def test_there_and_back_over_two_hosts(self, tmp_path: Path) -> None:
        shared = HostsState()
        high_water = HighWater(tmp_path / "a", shared)
        first = Incarnations(shared, high_water)
        first.observe(view("a", 3))
        first.check_file(1, 3, "100-1-aa")
        place = LogPosition(1, 3, 700)
        high_water.rise(Datamarker(place, "0-1-7", place))
        # Another host serves another server, and notes how far the first one was read.
        high_water = HighWater(tmp_path / "b", shared)
        other = Incarnations(shared, high_water)
        assert other.observe(view("b", 9)) == 2
        other.check_way(marker(1))
        assert other.read_since(1) == [(1, "0-1-7")]
        place = LogPosition(2, 9, 40)
        high_water.rise(Datamarker(place, "0-1-7,0-2-8", place))
        back = Incarnations(shared, HighWater(tmp_path / "a", shared))
        assert back.observe(view("a", 3)) == 3
        assert back.knows_file(3)
        back.check_way(marker(2))
        assert back.read_since(1) == [(1, "0-1-7"), (2, "0-1-7,0-2-8")]

    def test_a_change_that_cannot_be_kept_is_none(self) -> None:
        """The next try finds the same, and nothing is handed out of an incarnation that no host would know."""
        shared = HostsState()
        incarnations = Incarnations(shared)
        incarnations.observe(view("a", 3))
        shared.refuses = CoordinationLost("gone")
        for _ in range(2):
            with pytest.raises(CoordinationLost):
                incarnations.observe(view("b", 9))
            with pytest.raises(CoordinationLost):
                incarnations.check_file(1, 3, "100-1")
            with pytest.raises(CoordinationLost):
                incarnations.observe(view("a", 5))
            assert incarnations.reached == LogPosition(1, 3, 0)
            assert not incarnations.knows_file(3)
        assert incarnations.observe(view("a", 3)) == 1, "nothing is new: nothing is written"
        shared.refuses = MarkerStoreError("too large")
        with pytest.raises(SourceUnavailable, match="too large"):
            incarnations.observe(view("b", 9))
        shared.refuses = None
        assert incarnations.observe(view("b", 9)) == 2
        assert Incarnations(shared).current == 2

    def test_a_question_waits_for_nothing_that_is_being_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shared = HostsState()
        incarnations = Incarnations(shared)
        incarnations.observe(view("a", 3))
        begun, go_on = threading.Event(), threading.Event()

        def write(*_: object) -> None:
            begun.set()
            assert go_on.wait(PATIENCE_S)

        monkeypatch.setattr(shared, "write", write)
        writer = threading.Thread(target=lambda: incarnations.observe(view("b", 9)))
        writer.start()
        try:
            assert begun.wait(PATIENCE_S)
            assert (incarnations.current, incarnations.reached) == (1, LogPosition(1, 3, 0))
            assert not incarnations.knows_file(9)
            assert incarnations.known("b") is None
        finally:
            go_on.set()
            writer.join()
        assert incarnations.current == 2

    def test_few_fingerprints_are_kept_and_the_newest(self) -> None:
        shared = HostsState()
        incarnations = Incarnations(shared)
        incarnations.observe(view("a", 1))
        incarnations.check_file(1, 1, "1-1-aaaaaaaa")
        document = shared.read("histories")
        document["incarnations"][0]["files"] |= {str(n): f"{n}-1-aaaaaaaa" for n in range(2, 1025)}
        shared.write("histories", document)
        incarnations = Incarnations(shared)
        for number in range(1025, 1100):
            incarnations.check_file(1, number, f"{number}-1-aaaaaaaa")
        known = given(incarnations.known("a"))
        assert (min(known.files), max(known.files), len(known.files)) == (76, 1099, 1024)
        writes = shared.writes
        incarnations.check_file(1, 3, "3-1-aaaaaaaa")
        assert shared.writes == writes, "an older one is not kept, and nothing changed"
        # A server that is away needs its newest state, and none of its earlier incarnations.
        incarnations.observe(view("b", 9))
        known = given(incarnations.known("a"))
        assert sorted(known.files) == list(range(1084, 1100))
        incarnations.observe(view("a", 1100))
        assert incarnations.knows_file(1099)
        counts = [len(one["files"]) for one in shared.read("histories")["incarnations"]]
        assert counts == [0, 0, 16]
        assert len(shared.documents["histories"]) < 2000

    def test_what_does_not_fit_is_the_oldest(self) -> None:
        """A datamarker of such an incarnation is held, as of one that was never seen."""
        shared = HostsState()
        incarnations = Incarnations(shared)
        for n in range(10):
            incarnations.observe(view(f"server {n} {'x' * 100_000}", 4))
        assert len(shared.documents["histories"]) < 900_000
        incarnations.check_way(marker(5))
        with pytest.raises(Diverged, match="never seen here"):
            incarnations.check_way(marker(1))
