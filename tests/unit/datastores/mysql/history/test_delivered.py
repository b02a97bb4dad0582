"""Which transactions were delivered, and what confirms that the log goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.history.confirmation import Confirmation, Unconfirmed
from datastores.mysql.history.continuity import Read, lost_history
from datastores.mysql.history.delivered import MariaDelivered, MySqlDelivered, delivered_of
from datastores.mysql.history.incarnations import Incarnations, Lost
from datastores.mysql.server.state import ServerState
from wormhole.host.state_file import FolderState
from wormhole.model.errors import Diverged, PositionError, SourceUnavailable
from wormhole.model.position import LogPosition

# --- confirmation ---


def test_what_one_connection_says_again_and_again_is_not_believed() -> None:
    confirmation = Confirmation()
    believe = confirmation.by(object())
    for _ in range(3):
        with pytest.raises(Unconfirmed, match="another server") as error:
            believe("another server")
        assert error.value.hint


def test_what_another_connection_says_too_is_believed_from_then_on() -> None:
    confirmation, first = Confirmation(), object()
    with pytest.raises(Unconfirmed):
        confirmation.by(first)("another server")
    with pytest.raises(Unconfirmed):
        confirmation.by(object())("a third server")
    confirmation.by(object())("another server")
    confirmation.by(first)("another server")


def test_what_is_kept_is_bounded() -> None:
    confirmation = Confirmation()
    for n in range(10_000):
        with pytest.raises(Unconfirmed):
            confirmation.believe(str(n), object())
    assert len(confirmation._answers) < 1000
    confirmation.believe("9999", object())


def scripted(*answers: Exception | str) -> Callable[[], str]:
    left = list(answers)

    def ask() -> str:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_an_error_that_somebody_has_to_act_on_has_to_come_twice() -> None:
    assert Confirmation().twice(scripted(Diverged("not here"), "here")) == "here"
    assert Confirmation().twice(scripted(PositionError("no place"), "here")) == "here"
    with pytest.raises(Diverged, match="not here"):
        Confirmation().twice(scripted(Diverged("not here"), Diverged("not here")))
    with pytest.raises(Diverged, match="not there"):
        Confirmation().twice(scripted(Diverged("not here"), Diverged("not there"), Diverged("not there")))


def test_a_doubt_is_asked_about_at_once_and_not_for_ever() -> None:
    assert Confirmation().twice(scripted(Unconfirmed("x"), Unconfirmed("y"), "here")) == "here"
    with pytest.raises(SourceUnavailable, match="answer 9"):
        Confirmation().twice(lambda: Confirmation().believe("answer 9", object()))


def test_every_other_error_is_raised_as_it_comes() -> None:
    with pytest.raises(SourceUnavailable, match="away"):
        Confirmation().twice(scripted(SourceUnavailable("away")))


# --- continuity ---


SEEN = {3: "100-1-aa", 4: "200-1-bb", 5: "300-1-cc"}


def view(*files: int, server: str = "a") -> ServerState:
    return ServerState(server, 1, "binlog", tuple((n, 1000) for n in files), (files[-1], 500), "")


@pytest.fixture
def incarnations(tmp_path: Path) -> Incarnations:
    made = Incarnations(FolderState(tmp_path))
    made.observe(view(3, 4, 5))
    for number, fingerprint in SEEN.items():
        made.check_file(1, number, fingerprint)
    return made


def lost(incarnations: Incarnations, present: ServerState, files: dict[int, str]) -> tuple[Lost | None, list[str]]:
    said: list[str] = []
    return lost_history(incarnations, present, files.__getitem__, said.append), said


def test_the_newest_file_that_was_seen_shows_it(incarnations: Incarnations) -> None:
    assert lost(incarnations, view(3, 4, 5, 6), {5: SEEN[5]}) == (None, [])
    assert lost(incarnations, view(5, 6, 7), {5: SEEN[5]}) == (None, [])


def test_an_older_file_is_common_to_a_backup_and_what_became_of_it(incarnations: Incarnations) -> None:
    """The oldest files of a restored copy are the same ones: only the newest that was seen tells."""
    found, said = lost(incarnations, view(3, 4, 5, 6), {**SEEN, 5: "999-1-cc"})
    assert found is not None
    assert not found.unproven
    assert "binlog.000005 is another file" in found.why
    assert said == [found.why]


def test_a_file_begun_in_the_same_second_behind_other_gtids_is_another(incarnations: Incarnations) -> None:
    assert lost(incarnations, view(5), {5: "300-1-cc"})[0] is None
    assert lost(incarnations, view(5), {5: "300-1-dd"})[0] is not None


def test_where_none_is_left_nothing_can_be_shown(incarnations: Incarnations) -> None:
    found, said = lost(incarnations, view(6, 7), {})
    assert found is not None
    assert found.unproven
    assert "binlog.000003 to binlog.000005" in found.why
    assert said == [found.why]


def test_of_a_server_that_was_never_seen_nothing_is_lost(incarnations: Incarnations, tmp_path: Path) -> None:
    assert lost(incarnations, view(1, server="b"), {}) == (None, [])
    assert lost(Incarnations(FolderState(tmp_path / "none")), view(1), {}) == (None, [])


def test_a_server_that_comes_back_is_known_by_its_files(incarnations: Incarnations) -> None:
    incarnations.observe(view(9, server="b"))
    assert lost(incarnations, view(5, 6), {5: SEEN[5]})[0] is None
    assert lost(incarnations, view(5, 6), {5: "999-1-cc"})[0] is not None


def test_it_has_to_be_said_twice(incarnations: Incarnations) -> None:
    confirmation = Confirmation()
    with pytest.raises(SourceUnavailable):
        lost_history(incarnations, view(6), SEEN.__getitem__, confirmation.by(object()))
    assert lost_history(incarnations, view(6), SEEN.__getitem__, confirmation.by(object())) is not None


@pytest.mark.parametrize(("offset", "lacking", "is_lost"), [(1000, "", False), (1001, "", True), (900, "0-1-7", True)])
def test_a_log_whose_read_end_is_gone(incarnations: Incarnations, offset: int, lacking: str, is_lost: bool) -> None:
    read = Read(LogPosition(1, 5, offset), lacking)
    found = lost_history(incarnations, view(5, 6), SEEN.__getitem__, lambda _: None, read)
    assert (found is not None) == is_lost
    if found is not None:
        assert (found.shared == LogPosition(1, 5, 1000)) == (lacking == "")
        assert f"1/5/{offset}" in found.why


def test_what_was_read_of_another_server_is_no_end_of_this_one(incarnations: Incarnations) -> None:
    incarnations.observe(view(9, server="b"))
    read = Read(LogPosition(2, 9, 5000), "0-1-7")
    assert lost_history(incarnations, view(5, 6), SEEN.__getitem__, lambda _: None, read) is None


# --- delivered ---


A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_set_grows_with_what_ends() -> None:
    delivered = MySqlDelivered(f"{A}:1-5")
    assert str(delivered) == f"{A}:1-5"
    delivered.add((A, B), (0, 0, 1, 0), (6, 7, 3, 8))
    assert str(delivered) == f"{A}:1-8,{B}:3"
    delivered.add((A, B), (), ())
    assert str(delivered) == f"{A}:1-8,{B}:3"


@pytest.mark.parametrize(
    ("sources", "ordinals", "numbers", "expected"),
    [
        ((A,), (0, 0, 0, 0), (5, 7, 8, 2), f"{A}:2:5:7-8"),
        ((A, B, f"{A}:tag"), (0, 1, 2), (1, 2, 3), f"{A}:1:tag:3,{B}:2"),
        ((f"{A}/12", A), (0, 1, 0), (157, 4, 400), f"{A}:4"),
    ],
    ids=["gaps and another order", "neighbours of two sources", "anonymous transactions leave no trace"],
)
def test_numbers_that_are_no_single_run(
    sources: tuple[str, ...], ordinals: tuple[int, ...], numbers: tuple[int, ...], expected: str
) -> None:
    delivered = MySqlDelivered("")
    delivered.add(sources, ordinals, numbers)
    assert str(delivered) == expected


def test_what_a_file_says_was_before_it() -> None:
    delivered = MySqlDelivered(f"{A}:1-5")
    assert str(delivered) == f"{A}:1-5"
    delivered.include(GtidSet.parse(f"{A}:4-9,{B}:1"))
    assert str(delivered) == f"{A}:1-9,{B}:1"


def test_a_position_is_the_last_of_each_domain() -> None:
    delivered = MariaDelivered("0-1-17,2-1-4")
    delivered.add(("0-1", "1-2"), (0, 0), (18, 19))
    assert str(delivered) == "0-1-19,2-1-4"
    delivered.add(("0-1", "1-2", "0-7"), (0, 1, 2, 1), (20, 5, 21, 6))
    assert str(delivered) == "0-7-21,1-2-6,2-1-4"
    delivered.add(("0-1", "0-7"), (0, 1, 0), (22, 23, 24))
    assert str(delivered) == "0-1-24,1-2-6,2-1-4"
    delivered.add(("0-1",), (), ())
    assert str(delivered) == "0-1-24,1-2-6,2-1-4"


@pytest.mark.parametrize("mariadb", [False, True])
def test_whose_words_a_stored_position_is_in(mariadb: bool) -> None:
    texts = {False: f"{A}:1-5", True: "0-1-17"}
    assert str(delivered_of(texts[mariadb], mariadb=mariadb)) == texts[mariadb]
    assert str(delivered_of("", mariadb=mariadb)) == ""
    with pytest.raises(PositionError):
        delivered_of(texts[not mariadb], mariadb=mariadb)
