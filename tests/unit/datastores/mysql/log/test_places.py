from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.mysql.history.incarnations import Incarnations
from datastores.mysql.log import places as places_module
from datastores.mysql.log.dump import FromFile, FromGtids, Start
from datastores.mysql.log.opening import Opening
from datastores.mysql.log.places import Places
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.host.state_file import FolderState
from wormhole.model.errors import PositionError, PositionPurged
from wormhole.model.position import Anchor, Datamarker, LogPosition

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
MYSQL = ServerState(UUID, 7, "binlog", ((7, 900), (8, 500), (9, 157)), (9, 157), f"{UUID}:1-20", f"{UUID}:1-4")
MARIADB = ServerState("7/", 7, "binlog", MYSQL.files, MYSQL.end, "0-1-20", state="0-1-20,1-1-3")


class Making:
    """A walk that was begun: what of it is looked at is made up by `World`."""

    def __init__(self, start: Start, delivered: str, place: LogPosition | None) -> None:
        self.start = start
        self.delivered = delivered
        self.place = place
        self.prepared = object()
        self.walk = self.file = self
        self.looked = ""
        self.closed = False
        self.began_s = 0

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@dataclass
class World:
    """A server as seen in ``view``, and everything that looks through its log; stands for queries, opening and scan."""

    view_: ServerState
    folder: Path
    mariadb: bool = False
    found: LogPosition = field(default_factory=lambda: LogPosition(1, 8, 321))
    problem: Exception | None = None
    walks: list[Making] = field(default_factory=list)
    seen: bool = False
    settled: list[bool] = field(default_factory=list)
    before: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.incarnations = Incarnations(FolderState(self.folder))
        if self.seen:
            self.incarnations.observe(self.view_)
        self.places = Places(self.ask, cast(StateQueries, self), self.incarnations, cast(Opening, self))

    def ask(self, question: Callable[[Any], Any]) -> Any:
        answer = question("control")
        if isinstance(answer, ServerState):
            self.incarnations.observe(answer)
        return answer

    def view(self, control: object, *, settled: bool = False) -> ServerState:
        assert control == "control"
        self.settled.append(settled)
        return self.view_

    def position_before(self, control: object, view: ServerState, number: int) -> str:
        assert control == "control"
        self.before.append(view.name(number))
        return "0-1-5"

    def walk(
        self, view: ServerState, incarnation: int, start: Start, delivered: str = "", place: LogPosition | None = None
    ) -> Making:
        assert (view, incarnation) == (self.view_, self.incarnations.current)
        self.walks.append(Making(start, delivered, place))
        return self.walks[-1]

    def look(self, making: Making, how: str) -> None:
        assert not making.closed
        making.looked = how
        if self.problem is not None:
            raise self.problem

    @property
    def only(self) -> Making:
        (making,) = self.walks
        assert making.closed
        return making


Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A world for a view; its log is looked through by the answers of the world."""

    def made(view: ServerState = MYSQL, **how: Any) -> World:
        world = World(view, tmp_path, mariadb=view.state != "", **how)

        def see_file(making: Making) -> None:
            world.look(making, "file")
            assert isinstance(making.start, FromFile)
            making.began_s = 100 * int(making.start.name.rpartition(".")[2])

        def find_next(making: Making) -> LogPosition:
            world.look(making, "next")
            return world.found

        def last_marker(
            making: Making, wanted: LogPosition, delivered: str, prepared: object, until_us: int
        ) -> Datamarker:
            until = "" if until_us == sys.maxsize else f" by {until_us}"
            world.look(making, f"last before {wanted}{until}")
            assert (delivered, prepared) == (making.delivered, making.prepared)
            return Datamarker(world.found, f"{delivered} and more", world.found, Anchor("x:1", 5, wanted), 77)

        for function in (see_file, find_next, last_marker):
            monkeypatch.setattr(places_module, function.__name__, function)
        return world

    return made


def test_the_earliest_place_is_the_beginning_of_the_oldest_file(make: Make) -> None:
    begin = LogPosition(1, 7, 4)
    world = make()
    assert world.places.earliest() == Datamarker(begin, f"{UUID}:1-4", begin)
    assert world.places.locate(" earliest\n") == world.places.earliest()
    assert not world.walks


def test_on_mariadb_everything_before_the_oldest_file_was_delivered(make: Make) -> None:
    world = make(MARIADB)
    assert world.places.earliest() == Datamarker(LogPosition(1, 7, 4), "0-1-5", LogPosition(1, 7, 4))
    assert world.before == ["binlog.000007"]


def test_the_latest_place_is_after_the_last_transaction(make: Make) -> None:
    world = make()
    end = LogPosition(1, 9, 157)
    assert world.places.latest() == Datamarker(end, f"{UUID}:1-20", end)
    assert world.settled == [True]
    making = world.only
    assert (making.start, making.looked) == (FromFile("binlog.000009", 4), "file")


def test_a_file_that_is_known_is_not_looked_at_again(make: Make) -> None:
    world = make()
    world.places.latest()
    world.incarnations.check_file(1, 9, "begun then")
    assert world.places.locate("latest").order == LogPosition(1, 9, 157)
    assert len(world.walks) == 1


@pytest.mark.parametrize("text", ["binlog.000008:400", "1/8/400", " binlog.000008:400 "])
def test_a_place_means_the_last_transaction_end_before_it(make: Make, text: str) -> None:
    world = make(seen=True)
    assert world.places.locate(text) == Datamarker(
        LogPosition(1, 8, 321), " and more", LogPosition(1, 8, 321), Anchor("x:1", 5, LogPosition(1, 8, 400)), 77
    )
    making = world.only
    assert (making.start, making.place) == (FromFile("binlog.000008", 4), LogPosition(1, 8, 4))
    assert (making.looked, making.delivered) == ("last before 1/8/400", "")


def test_on_mariadb_it_is_counted_from_the_position_before_the_file(make: Make) -> None:
    world = make(MARIADB)
    assert world.places.locate("binlog.000008:400").delivered == "0-1-5 and more"
    assert (world.only.delivered, world.before) == ("0-1-5", ["binlog.000008"])


@pytest.mark.parametrize("text", ["binlog.000009:157", "binlog.000008:500", "binlog.000007:4", "1/7/0"])
def test_places_at_the_edges_of_the_log(make: Make, text: str) -> None:
    world = make(seen=True)
    assert world.places.locate(text).order == world.found
    assert world.only.closed


@pytest.mark.parametrize("text", ["binlog.000009:158", "binlog.000010:4", "binlog.000008:501", "1/9/158"])
def test_a_place_ahead_of_the_log(make: Make, text: str) -> None:
    world = make(seen=True)
    with pytest.raises(PositionError, match=r"binlog\.000009:157 \(1/9/157\).*\[position-invalid\]"):
        world.places.locate(text)
    assert not world.walks


def test_the_file_that_is_written_grows_while_it_is_asked_for(make: Make) -> None:
    world = make(replace(MYSQL, files=((7, 900), (8, 500), (9, 100))))
    assert world.places.locate("binlog.000009:157").order == world.found


@pytest.mark.parametrize("text", ["binlog.000006:400", "1/6/400"])
def test_a_place_that_was_purged(make: Make, text: str) -> None:
    world = make(seen=True)
    with pytest.raises(PositionPurged, match=r"begins with file binlog\.000007") as error:
        world.places.locate(text)
    assert (error.value.last_missing, error.value.position) == ("1/7/4", text)
    assert error.value.hint
    assert not world.walks


def test_a_place_of_another_history(make: Make) -> None:
    world = make(seen=True)
    with pytest.raises(PositionError, match=r"2/8/400.* 2.* 1 .*\[position-invalid\]"):
        world.places.locate("2/8/400")


def test_a_file_of_another_name(make: Make) -> None:
    with pytest.raises(PositionError, match=r"the server's files are called binlog\.\*"):
        make().places.locate("mysql-bin.000008:400")


def test_after_gtids_comes_the_next_transaction(make: Make) -> None:
    world = make()
    marker = world.places.locate(f"{UUID.upper()}:1-3:4-9")
    assert marker == Datamarker(LogPosition(1, 8, 321), f"{UUID}:1-9", LogPosition(1, 8, 321))
    making = world.only
    assert (making.start, making.delivered, making.looked) == (FromGtids(f"{UUID}:1-9"), f"{UUID}:1-9", "next")
    assert world.settled == [True]


def test_after_a_position_of_mariadb(make: Make) -> None:
    world = make(MARIADB)
    marker = world.places.locate("0-1-9")
    assert (marker.order, marker.delivered) == (LogPosition(1, 8, 321), "0-1-9")
    assert world.only.start == FromGtids("0-1-9")


@pytest.mark.parametrize(("view", "text"), [(MYSQL, f"{UUID}:1-20"), (MARIADB, "0-1-20")])
def test_after_everything_is_the_end_of_the_log(make: Make, view: ServerState, text: str) -> None:
    world = make(view)
    end = LogPosition(1, 9, 157)
    assert world.places.locate(text) == Datamarker(end, text, end)
    making = world.only  # or the place could be taken for one of another file
    assert (making.start, making.looked) == (FromFile("binlog.000009", 4), "file")


@pytest.mark.parametrize(
    ("view", "text", "lacking"), [(MYSQL, f"{UUID}:1-25", f"{UUID}:21-25"), (MARIADB, "0-1-20,5-1-1", "5-1-1")]
)
def test_what_the_server_never_executed_is_no_place(make: Make, view: ServerState, text: str, lacking: str) -> None:
    with pytest.raises(PositionError, match=rf" {lacking} of {text}.*\[position-invalid\]"):
        make(view).places.locate(text)
    with pytest.raises(PositionError) as caught:
        make(view).places.locate(lacking)
    assert caught.value.message == f"the server has not executed {lacking}"


@pytest.mark.parametrize(
    ("view", "text", "first", "last", "told"),
    [
        (MYSQL, f"{UUID}:1-2", f"{UUID}:3-4", f"{UUID}:3-4", f"{UUID}:3-4"),
        (MARIADB, "0-1-3", "0-1-4", "0-1-5", "0-1-4 to 0-1-5"),
    ],
)
def test_what_follows_was_purged(make: Make, view: ServerState, text: str, first: str, last: str, told: str) -> None:
    with pytest.raises(PositionPurged, match=f"the server purged {told}, which follow {text} ") as error:
        make(view).places.locate(text)
    assert (error.value.first_missing, error.value.last_missing, error.value.position) == (first, last, text)


@pytest.mark.parametrize("text", ["", ",", "first", f"{UUID}", "0-1-9", "binlog.000008", "binlog.8:4", f"{UUID}:5-1"])
def test_what_is_no_place_at_all(make: Make, text: str) -> None:
    with pytest.raises(PositionError) as error:
        make().places.locate(text)
    assert "earliest, latest, file:offset" in str(error.value.hint)


@pytest.mark.parametrize("text", ["1/8", "1/8/x"])
def test_what_is_no_place_of_ours(make: Make, text: str) -> None:
    with pytest.raises(PositionError, match="is no place in a log"):
        make().places.locate(text)


@pytest.mark.parametrize("text", ["latest", "binlog.000008:400", f"{UUID}:1-9"])
def test_a_walk_that_fails_is_closed(make: Make, text: str) -> None:
    world = make(problem=RuntimeError("broke"))
    with pytest.raises(RuntimeError, match="broke"):
        world.places.locate(text)
    assert world.only.looked


@pytest.mark.parametrize(
    ("at_s", "file", "wanted"), [(701.0, 7, "1/8/4"), (800.9, 7, "1/8/4"), (801.0, 8, "1/9/4"), (5000.0, 9, "1/9/157")]
)
def test_a_time_is_looked_for_in_the_last_file_begun_by_then(make: Make, at_s: float, file: int, wanted: str) -> None:
    world = make()
    at_us = round(at_s * 1e6)
    assert world.places.locate_time(at_us).order == world.found
    assert world.settled == [True]
    assert all(making.closed for making in world.walks)
    last = world.walks[-1]
    assert (last.start, last.place) == (FromFile(f"binlog.00000{file}", 4), LogPosition(1, file, 4))
    assert last.looked == f"last before {wanted} by {at_us}"


def test_a_time_of_whole_seconds_may_be_its_end(make: Make) -> None:
    world = make(MARIADB)
    world.places.locate_time(800_500_000)  # file 8 was begun in this second: perhaps later than that
    assert world.walks[-1].start == FromFile("binlog.000007", 4)
    assert world.walks[-1].looked == "last before 1/8/4 by 799500001"


def test_a_time_before_the_oldest_file_says_where_the_log_begins(make: Make) -> None:
    world = make()
    with pytest.raises(PositionPurged, match=r" 1/7/4 .* 1970-01-01 00:11:40 UTC.*\[marker-purged\]"):
        world.places.locate_time(699_999_999)
