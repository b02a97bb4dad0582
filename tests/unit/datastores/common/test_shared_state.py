"""What hosts share of a log's state, and what the first of them brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep, load
from datastores.common.shared_state import open_state
from tests.support.hosts_state import HostsState
from wormhole.host.state_file import FolderState
from wormhole.model.errors import CoordinationLost, MarkerStoreError, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.source_state import SourceState

HISTORIES = {"incarnations": [{"number": 3}]}
PLACE = LogPosition(3, 7, 400)
READ = Datamarker(PLACE, "0-1-9", PLACE, Anchor("0-1:9", 7, LogPosition(3, 7, 300)))


def options(folder: Path, state: SourceState | None) -> SourceOptions:
    return SourceOptions("log", folder, Sharding("log"), 1 << 20, 1 << 20, state=state)


def a_folder(at: Path) -> Path:
    """As a publisher leaves it that shares nothing."""
    at.mkdir()
    FolderState(at).write("histories", HISTORIES)
    FolderState(at).write("publication", {"oid": 5})
    HighWater(at / "read.bin").rise(READ)
    return at


def test_a_source_that_shares_nothing_has_its_folder(tmp_path: Path) -> None:
    state, high_water = open_state(options(tmp_path, None), a_folder(tmp_path / "a"), "publication")
    assert (state.read("histories"), high_water.last) == (HISTORIES, READ)
    state.write("more", {"a": [1]})
    assert FolderState(tmp_path / "a").read("more") == {"a": [1]}


def test_the_first_host_brings_along_what_its_folder_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared, folder = HostsState(), a_folder(tmp_path / "a")
    state, high_water = open_state(options(tmp_path, shared), folder, "publication")
    assert state is shared
    assert (shared.read("histories"), shared.read("publication")) == (HISTORIES, {"oid": 5})
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
    assert (shared.read("histories"), high_water.last) == (HISTORIES, READ)


def test_another_hosts_folder_of_an_earlier_service_does_not_count(tmp_path: Path) -> None:
    """Its numbers mean other histories, and its file was read further under one that is the same."""
    shared = HostsState()
    _, first = open_state(options(tmp_path, shared), a_folder(tmp_path / "a"))
    other = a_folder(tmp_path / "b")
    further = LogPosition(3, 7, 9000)
    HighWater(other / "read.bin").rise(Datamarker(further, "0-1-99", further))
    FolderState(other).write("histories", {"incarnations": [{"number": 8}]})
    _, high_water = open_state(options(tmp_path, shared), other)
    assert (shared.read("histories"), high_water.last) == (HISTORIES, READ)
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
