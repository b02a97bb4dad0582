"""What a source keeps of a log, and what hosts share of it."""

from __future__ import annotations

from pathlib import Path
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
    with pytest.raises(SourceUnavailable, match=r"publication\.json in .* holds nothing that a publisher wrote"):
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
    with pytest.raises(SourceUnavailable, match=r"read\.json cannot be written in .*missing: No such file") as error:
        keep(missing, "read", {})
    assert error.value.hint
    (tmp_path / "read.json").mkdir()
    with pytest.raises(SourceUnavailable, match=r"read\.json cannot be read"):
        load(FolderState(tmp_path), "read")
