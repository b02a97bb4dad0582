"""A file that names no ZooKeeper finds the one that `wormholectl up` embeds for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.test_coordinator import PLAIN
from wormhole.config import CoordinatorConfig, load
from wormhole.coordination.connect import connect, zookeeper_at
from wormhole.coordination.credentials import VARIABLE
from wormhole.coordination.up_data_folder import embedded_coordinator, remove_embedded, up_folder, write_embedded
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError

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
