from __future__ import annotations

from pathlib import Path

import pytest

from datastores.mysql.history.confirmation import Confirmation
from datastores.mysql.history.continuity import Read, lost_history
from datastores.mysql.history.incarnations import Incarnations, Lost
from datastores.mysql.server.state import ServerState
from wormhole.host.state_file import FolderState
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import LogPosition

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
