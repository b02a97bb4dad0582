"""Files of a host: its own, and those of `wormholectl up`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.test_coordinator import PLAIN
from wormhole.config import CoordinatorConfig, load
from wormhole.coordination.connect import connect, zookeeper_at
from wormhole.coordination.credentials import VARIABLE
from wormhole.coordination.host_files import HostFiles
from wormhole.coordination.port import HistoryEntry, HostRequest
from wormhole.coordination.up_data_folder import embedded_coordinator, remove_embedded, up_folder, write_embedded
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError

# --- The files of the static form: whole lines only, bounded, and one clear error for a disk that refuses


def entry(number: int) -> HistoryEntry:
    return HistoryEntry(float(number), "eve@host1", "flows pause", "cache/db1", "line 1\nline 2", "")


def numbers(files: HostFiles, limit: int = 10_000) -> list[int]:
    return [round(found.at) for found in files.history(limit)]


def test_another_process_sees_what_one_wrote(tmp_path: Path) -> None:
    one, other = HostFiles(tmp_path / "state"), HostFiles(tmp_path / "state")
    assert (other.request("host1"), other.history(10)) == (HostRequest(), ())
    one.set_request("host1", HostRequest(True, "eve", 3.0))
    one.record(entry(1))
    assert (other.request("host1"), other.history(10)) == (HostRequest(True, "eve", 3.0), (entry(1),))


def test_the_history_keeps_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wormhole.coordination.host_files.HISTORY_KEPT", 10)
    monkeypatch.setattr("wormhole.coordination.host_files._SPARE", 3)
    files = HostFiles(tmp_path)
    for number in range(40):
        files.record(entry(number))
        assert len((tmp_path / "history.jsonl").read_bytes().splitlines()) <= 13
    assert numbers(files) == list(range(39, 29, -1))
    assert numbers(files, 2) == [39, 38]


def test_a_line_that_a_crash_tore_off_hides_no_other(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    for number in range(3):
        files.record(entry(number))
    path = tmp_path / "history.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert numbers(files) == [1, 0]
    files.record(entry(3))
    assert numbers(files) == [3, 1, 0]


def test_entries_of_several_at_once_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: HostFiles(tmp_path).record(entry(number)), range(40)))
    assert sorted(numbers(HostFiles(tmp_path))) == list(range(40))


def test_a_state_folder_that_refuses_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    files = HostFiles(tmp_path / "state")
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        files.record(entry(1))
    assert "publisher.state_dir" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="cannot be written"):
        files.set_request("host1", HostRequest())
    with pytest.raises(ConfigError, match="cannot be read"):
        files.history(1)
    with pytest.raises(ConfigError, match="cannot be read"):
        files.request("host1")


# --- A file that names no ZooKeeper finds the one that `wormholectl up` embeds for it


EMBEDDED = CoordinatorConfig(
    zookeeper="127.0.0.1:7123/wormhole", auth_file=Path("/data/zookeeper/credentials"), same_user=True
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(PLAIN)
    return path


def test_the_folder_is_beside_the_file_or_where_data_names_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert up_folder(Path("shop.toml")) == tmp_path / ".wormhole" / "shop"
    assert up_folder(file, Path("data")) == tmp_path / "data"


def test_a_file_connects_to_what_up_embeds_for_it(file: Path) -> None:
    write_embedded(up_folder(file), EMBEDDED, Path("/data/state"))
    coordinator = connect(str(file), session_timeout=3.0)
    assert isinstance(coordinator, ZooKeeperCoordinator)
    assert "127.0.0.1:7123/wormhole" in repr(coordinator)
    assert [made.name for made in up_folder(file).iterdir()] == ["coordinator.json"]


def test_the_credentials_are_found_by_the_file_and_by_what_up_wrote(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = write_embedded(up_folder(file), EMBEDDED, Path("/data/state"))
    monkeypatch.setenv(VARIABLE, "/of/another/zookeeper")
    file.write_text(f"{PLAIN}[coordinator]\nsession_timeout = 7\n")
    assert load(told).publisher.state_dir == Path("/data/state")
    for target, timeout in ((str(file), 7.0), (str(told), 10.0)):
        assert zookeeper_at(target) == EMBEDDED.model_copy(update={"session_timeout": timeout})


def test_an_up_of_an_earlier_release_is_found(file: Path) -> None:
    write_embedded(up_folder(file), EMBEDDED, Path("/data/state"))
    (up_folder(file) / "coordinator.json").write_text('{"zookeeper": "127.0.0.1:7123/wormhole"}')
    assert embedded_coordinator(file) == CoordinatorConfig(zookeeper="127.0.0.1:7123/wormhole")


def test_the_environment_names_the_credentials_for_an_address_and_for_the_file_of_a_host(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f'{PLAIN}[coordinator]\nzookeeper = "zk1:2181/wormhole"\nauth_file = "/of/the/publisher"\n')
    assert zookeeper_at("zk1:2181/wormhole").auth_file is None
    assert zookeeper_at(file).auth_file == Path("/of/the/publisher")
    monkeypatch.setenv(VARIABLE, "/of/maria")
    assert zookeeper_at("zk1:2181/wormhole").auth_file == zookeeper_at(file).auth_file == Path("/of/maria")
    assert zookeeper_at(load(file)).auth_file == Path("/of/the/publisher")  # a daemon's


def test_without_up_the_next_step_is_reported(file: Path) -> None:
    write_embedded(up_folder(file), EMBEDDED, Path("/data/state"))
    remove_embedded(up_folder(file))
    remove_embedded(up_folder(file))
    with pytest.raises(ConfigError, match=r"no `wormholectl up` runs it") as caught:
        connect(file)
    for way in (f"wormholectl up -f {file}", "zookeeper = ", "subscribers"):
        assert way in str(caught.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"version": 1, "coordinator": {}}',
        '{"zookeeper": 3}',
        '{"zookeeper": ""}',
        '{"zookeeper": "nowhere"}',
    ],
)
def test_what_makes_no_sense_there_is_reported(file: Path, text: str) -> None:
    write_embedded(up_folder(file), EMBEDDED, Path("/data/state"))
    (up_folder(file) / "coordinator.json").write_text(text)
    with pytest.raises(ConfigError, match=r"coordinator\.json: cannot be read"):
        embedded_coordinator(file)
