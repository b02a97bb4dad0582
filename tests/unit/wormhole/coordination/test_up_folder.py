"""A file that names no ZooKeeper finds the one that `wormholectl up` embeds for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.test_coordinator import PLAIN
from wormhole.coordination import ZooKeeperCoordinator, connect
from wormhole.coordination.up_folder import embedded_coordinator, forget_embedded, tell_embedded, up_folder
from wormhole.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(PLAIN)
    return path


def test_the_folder_stands_beside_the_file_or_where_it_was_told(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert up_folder(Path("shop.toml")) == tmp_path / ".wormhole" / "shop"
    assert up_folder(file, Path("data")) == tmp_path / "data"


def test_a_file_connects_to_what_up_embeds_for_it(file: Path) -> None:
    tell_embedded(up_folder(file), "127.0.0.1:7123/wormhole")
    coordinator = connect(str(file), session_timeout=3.0)
    assert isinstance(coordinator, ZooKeeperCoordinator)
    assert "127.0.0.1:7123/wormhole" in repr(coordinator)
    assert [made.name for made in up_folder(file).iterdir()] == ["coordinator.json"]


def test_without_up_the_next_step_is_told(file: Path) -> None:
    tell_embedded(up_folder(file), "127.0.0.1:7123/wormhole")
    forget_embedded(up_folder(file))
    forget_embedded(up_folder(file))
    with pytest.raises(ConfigError, match=r"no `wormholectl up` runs it") as caught:
        connect(file)
    for way in (f"wormholectl up -f {file}", "zookeeper = ", "subscribers"):
        assert way in str(caught.value.hint)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"zookeeper": 3}', '{"zookeeper": ""}', '{"zookeeper": "nowhere"}'])
def test_what_makes_no_sense_there_is_told(file: Path, text: str) -> None:
    tell_embedded(up_folder(file), "127.0.0.1:7123/wormhole")
    (up_folder(file) / "coordinator.json").write_text(text)
    with pytest.raises(ConfigError, match=r"coordinator\.json: cannot be read"):
        embedded_coordinator(file)
