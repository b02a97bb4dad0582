"""What a source keeps of a log, its high-water mark, and what hosts share of it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep, load
from datastores.common.shared_state import open_state
from datastores.mysql.history.incarnations import Incarnations as MySqlIncarnations
from datastores.postgres.history.incarnations import Incarnations as PostgresIncarnations
from datastores.postgres.tables.publication import DOCUMENT, Publication
from tests.support.hosts_state import HostsState
from wormhole.host.state_file import FolderState
from wormhole.model.errors import CoordinationLost, MarkerStoreError, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.source_state import HISTORIES, SourceState

# --- kept state: documents in which a source keeps what it knows: in ZooKeeper others can write them ---


@pytest.mark.parametrize("incarnations", [5, "x", {}, [5], [{}], [{"number": "1", "server": "a", "timeline": 1}], None])
@pytest.mark.parametrize("kind", [MySqlIncarnations, PostgresIncarnations])
def test_histories_that_no_source_wrote_are_named(kind: type, incarnations: Any) -> None:
    state = HostsState()
    state.write(HISTORIES, {"incarnations": incarnations})
    with pytest.raises(SourceUnavailable, match="holds nothing that a publisher wrote") as caught:
        kind(state)
    assert "restore it from a backup, or delete it" in str(caught.value.hint)


@pytest.mark.parametrize("document", [{"oid": "7"}, {"since": None}, {"until": 1.5}, {"oid": True}])
def test_a_publication_that_no_source_wrote_is_named(document: dict[str, Any]) -> None:
    state = HostsState()
    state.write(DOCUMENT, document)
    with pytest.raises(SourceUnavailable, match=r"^publication\.json in .*\[record-invalid\]"):
        Publication(state)


# --- shared state: what hosts share of a log's state, and what the first of them brings along ---


SHARED = {"incarnations": [{"number": 3}]}
PLACE = LogPosition(3, 7, 400)
READ = Datamarker(PLACE, "0-1-9", PLACE, Anchor("0-1:9", 7, LogPosition(3, 7, 300)))


def options(folder: Path, state: SourceState | None) -> SourceOptions:
    return SourceOptions("log", folder, Sharding("log"), 1 << 20, 1 << 20, state=state)


def a_folder(at: Path) -> Path:
    """As a publisher leaves it that shares nothing."""
    at.mkdir()
    FolderState(at).write("histories", SHARED)
    FolderState(at).write("publication", {"oid": 5})
    HighWater(at / "read.bin").rise(READ)
    return at


def test_a_source_that_shares_nothing_has_its_folder(tmp_path: Path) -> None:
    state, high_water = open_state(options(tmp_path, None), a_folder(tmp_path / "a"), "publication")
    assert (state.read("histories"), high_water.last) == (SHARED, READ)
    state.write("more", {"a": [1]})
    assert FolderState(tmp_path / "a").read("more") == {"a": [1]}


def test_the_first_host_brings_along_what_its_folder_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared, folder = HostsState(), a_folder(tmp_path / "a")
    state, high_water = open_state(options(tmp_path, shared), folder, "publication")
    assert state is shared
    assert (shared.read("histories"), shared.read("publication")) == (SHARED, {"oid": 5})
    assert high_water.last == READ
    assert f"what {folder} knows" in caplog.text
    caplog.clear()
    shared.write("histories", {"incarnations": [{"number": 4}]})
    open_state(options(tmp_path, shared), folder, "publication")
    assert shared.read("histories") == {"incarnations": [{"number": 4}]}
    assert not caplog.records


def test_what_ends_on_the_way_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, folder = HostsState(), a_folder(tmp_path / "a")
    write = shared.write

    def cut(name: str, content: dict[str, object]) -> None:
        if name == "histories":
            raise CoordinationLost("gone")
        write(name, content)

    monkeypatch.setattr(shared, "write", cut)
    with pytest.raises(CoordinationLost):
        open_state(options(tmp_path, shared), folder, "publication")
    monkeypatch.undo()
    _, high_water = open_state(options(tmp_path, shared), folder, "publication")
    assert (shared.read("histories"), high_water.last) == (SHARED, READ)


def test_another_hosts_folder_of_an_earlier_service_does_not_count(tmp_path: Path) -> None:
    """Its numbers mean other histories, and its file was read further under one that is the same."""
    shared = HostsState()
    _, first = open_state(options(tmp_path, shared), a_folder(tmp_path / "a"))
    other = a_folder(tmp_path / "b")
    further = LogPosition(3, 7, 9000)
    HighWater(other / "read.bin").rise(Datamarker(further, "0-1-99", further))
    FolderState(other).write("histories", {"incarnations": [{"number": 8}]})
    _, high_water = open_state(options(tmp_path, shared), other)
    assert (shared.read("histories"), high_water.last) == (SHARED, READ)
    assert high_water.histories == first.histories


def test_a_new_log_begins_with_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = HostsState()
    _, high_water = open_state(options(tmp_path, shared), tmp_path)
    assert high_water.last is None
    assert not caplog.records


def test_errors_say_what_could_not_be_kept(tmp_path: Path) -> None:
    shared = HostsState()
    shared.refuses = CoordinationLost("no contact", hint="wait")
    with pytest.raises(CoordinationLost):
        keep(shared, "read", {})
    with pytest.raises(SourceUnavailable, match=r"\(read\): no contact") as error:
        load(shared, "read")
    assert error.value.hint == "wait"
    shared.refuses = MarkerStoreError("it is not ours", hint="look")
    with pytest.raises(SourceUnavailable, match=r"\(read\): it is not ours") as error:
        keep(shared, "read", {})
    assert error.value.hint == "look"
    missing = FolderState(tmp_path / "missing")
    assert load(missing, "read") == {}
    with pytest.raises(SourceUnavailable, match=r"^read\.json .*missing: No such file.*\[file-unwritable\]") as error:
        keep(missing, "read", {})
    assert error.value.hint
    (tmp_path / "read.json").mkdir()
    with pytest.raises(SourceUnavailable, match=r"read\.json cannot be read"):
        load(FolderState(tmp_path), "read")


# --- high water ---


def marker(offset: int, delivered: str = "", incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, 3, offset)
    return Datamarker(place, delivered, place)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "read.bin"


def test_a_process_that_ends_at_any_moment_leaves_the_last_place(path: Path) -> None:
    high_water = HighWater(path)
    assert high_water.last is None
    for offset in range(100, 120):
        high_water.rise(marker(offset, f"0-1-{offset}"))
        assert HighWater(path).last == marker(offset, f"0-1-{offset}")
    high_water.sync()


def test_only_what_is_further_counts(path: Path) -> None:
    high_water = HighWater(path)
    high_water.rise(marker(500, "0-1-5"))
    high_water.rise(marker(400, "0-1-4"))
    assert HighWater(path).last == marker(500, "0-1-5")
    high_water.rise(marker(4, "0-1-6", incarnation=2))
    assert HighWater(path).last == marker(4, "0-1-6", incarnation=2)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_write_that_was_cut_leaves_the_one_before(path: Path, damage: str) -> None:
    high_water = HighWater(path)
    for offset in (100, 200, 300):
        high_water.rise(marker(offset, "0-1-7" * 50))
    data = bytearray(path.read_bytes())
    last = data.rindex(b"1/3/300")
    if damage == "cut":
        data[last:] = bytes(len(data) - last)
    else:
        data[last + 2] ^= 1
    path.write_bytes(data)
    again = HighWater(path)
    assert again.last == marker(200, "0-1-7" * 50)
    again.rise(marker(400, "0-1-8"))
    assert HighWater(path).last == marker(400, "0-1-8")


@pytest.mark.parametrize("content", [b"", b"x", bytes(2 << 20), Random(1).randbytes(1 << 16)])
def test_a_file_that_makes_no_sense_is_begun_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    high_water = HighWater(path)
    assert high_water.last is None
    high_water.rise(marker(100, "0-1-1"))
    assert HighWater(path).last == marker(100, "0-1-1")


def test_a_set_that_is_too_large_leaves_the_place(path: Path) -> None:
    high_water = HighWater(path)
    high_water.rise(marker(100, "x" * (1 << 20)))
    assert HighWater(path).last == marker(100)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    high_water = HighWater(tmp_path / "missing" / "read.bin")
    with pytest.raises(SourceUnavailable, match="cannot be read or written") as error:
        high_water.rise(marker(100))
    assert error.value.hint


class TestHosts:
    """Two hosts that own the log one after the other."""

    def test_another_host_knows_what_was_brought_to_it(self, tmp_path: Path) -> None:
        shared = HostsState()
        first = HighWater(tmp_path / "a", shared)
        assert (first.last, shared.writes) == (None, 1), "the histories have a name from then on"
        first.rise(marker(100, "0-1-1"))
        assert HighWater(tmp_path / "b", shared).last == marker(100, "0-1-1"), "the first place is shared at once"
        first.rise(marker(200, "0-1-2"))
        assert HighWater(tmp_path / "b", shared).last == marker(100, "0-1-1")
        first.sync()
        writes = shared.writes
        first.sync()
        assert shared.writes == writes, "nothing is new"
        assert HighWater(tmp_path / "b", shared).last == marker(200, "0-1-2")

    def test_the_same_host_knows_it_to_the_last_place(self, tmp_path: Path) -> None:
        shared = HostsState()
        first = HighWater(tmp_path / "a", shared)
        for offset in (100, 200):
            first.rise(marker(offset, f"0-1-{offset}"))
        again = HighWater(tmp_path / "a", shared)
        assert again.last == marker(200, "0-1-200")
        again.sync()
        assert HighWater(tmp_path / "b", shared).last == marker(200, "0-1-200")

    def test_what_a_host_read_before_another_one_does_not_count(self, tmp_path: Path) -> None:
        shared = HostsState()
        first = HighWater(tmp_path / "a", shared)
        for offset in (100, 300):
            first.rise(marker(offset, "0-1-3"))
        other = HighWater(tmp_path / "b", shared)
        other.rise(marker(50, "0-1-5", incarnation=2))
        assert HighWater(tmp_path / "a", shared).last == marker(50, "0-1-5", incarnation=2)

    def test_a_restored_document_is_not_outdone_by_a_later_incarnation(self, tmp_path: Path) -> None:
        shared = HostsState()
        first = HighWater(tmp_path / "a", shared)
        first.rise(marker(100, "0-1-1"))
        backup = dict(shared.documents)
        first.rise(marker(100, "0-1-2", incarnation=2))
        shared.documents = backup
        assert HighWater(tmp_path / "a", shared).last == marker(100, "0-1-1")

    @pytest.mark.parametrize("left", ["own", "other"])
    def test_a_file_of_other_histories_does_not_count(self, tmp_path: Path, left: str) -> None:
        HighWater(tmp_path / "a", None if left == "own" else HostsState()).rise(marker(900, "0-1-9"))
        shared = HostsState()
        HighWater(tmp_path / "b", shared).rise(marker(100, "0-1-1"))
        again = HighWater(tmp_path / "a", shared)
        assert again.last == marker(100, "0-1-1")
        again.rise(marker(200, "0-1-2"))
        assert HighWater(tmp_path / "a", shared).last == marker(200, "0-1-2")
        assert HighWater(tmp_path / "a").last is None, "nor does it where nothing is shared any more"

    def test_the_anchor_comes_along(self, tmp_path: Path) -> None:
        shared, place = HostsState(), LogPosition(1, 0, 400)
        proven = Datamarker(place, "1:0/190", place, Anchor("7:1:380", 0xFFFFFFFF, LogPosition(1, 0, 380)))
        HighWater(tmp_path / "a", shared).rise(proven)
        assert HighWater(tmp_path / "a", shared).last == proven
        assert HighWater(tmp_path / "b", shared).last == proven

    def test_a_first_place_that_cannot_be_shared_is_not_handed_out(self, tmp_path: Path) -> None:
        shared = HostsState()
        first = HighWater(tmp_path / "a", shared)
        shared.refuses = CoordinationLost("gone")
        with pytest.raises(CoordinationLost):
            first.rise(marker(100))
        assert first.last is None
        shared.refuses = None
        first.rise(marker(100))
        assert HighWater(tmp_path / "b", shared).last == marker(100)

    def test_what_could_not_be_shared_is_said_and_shared_later(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        shared = HostsState()
        first = HighWater(tmp_path / "a", shared)
        first.rise(marker(100))
        first.rise(marker(200))
        shared.refuses = CoordinationLost("no contact", hint="wait")
        for _ in range(2):
            first.try_sync()
        assert "no contact" in first.problem.text
        assert first.problem.hint == "wait"
        assert len(caplog.records) == 1
        shared.refuses = None
        first.try_sync()
        assert not first.problem
        assert HighWater(tmp_path / "b", shared).last == marker(200)

    @pytest.mark.parametrize("order", ["x", "1/2", 7, None])
    def test_a_document_that_makes_no_sense_is_begun_anew(self, tmp_path: Path, order: object) -> None:
        shared = HostsState()
        shared.write("read", {"id": "aa", "order": order, "delivered": "", "anchor": []})
        again = HighWater(tmp_path / "a", shared)
        assert (again.last, again.histories) == (None, "aa")
        again.rise(marker(100))
        assert HighWater(tmp_path / "b", shared).last == marker(100)

    def test_a_set_that_is_too_large_leaves_the_place(self, tmp_path: Path) -> None:
        shared = HostsState()
        HighWater(tmp_path / "a", shared).rise(marker(100, "x" * (1 << 20)))
        assert HighWater(tmp_path / "b", shared).last == marker(100)
