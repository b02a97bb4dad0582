"""A configuration file in a folder like ``/tmp``: what another user put beside it is not taken for the data folder
of ``up``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from wormhole.coordination.up_data_folder import embedded_coordinator, up_folder
from wormhole.model.errors import ConfigError
from wormholectl.run.background import detached, down

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """In a folder that everybody can write to."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    made = folder / "shop.toml"
    made.write_text("version = 1\n")
    return made


def planted(file: Path, *names: str) -> Path:
    path = file.parent.joinpath(".wormhole", *names)
    path.mkdir(parents=True)
    os.chown(path, NOBODY, NOBODY)
    return path


def _up(file: Path) -> None:
    detached(file, None)


def _down(file: Path) -> None:
    down(file, None)


@pytest.mark.parametrize("use", [_up, _down, embedded_coordinator])
def test_what_another_user_planted_is_neither_written_to_nor_believed(
    file: Path, use: Callable[[Path], object]
) -> None:
    folder = planted(file)
    victim = file.parent.parent / "victim"
    victim.write_text("kept")
    (folder / "shop").mkdir()
    (folder / "shop" / "up.log").symlink_to(victim)
    (folder / "shop" / "up.json").write_text("{}")
    (folder / "shop" / "coordinator.json").write_text('{"coordinator": {"zookeeper": "127.0.0.1:1"}}')
    with pytest.raises(ConfigError, match=rf"{folder} belongs to user {NOBODY}, and every user can write to"):
        use(file)
    assert victim.read_text() == "kept"


def test_a_folder_that_was_left_open_is_looked_into(file: Path) -> None:
    inner = planted(file, "shop")
    inner.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=f"{inner} belongs to user {NOBODY}"):
        up_folder(file)


def test_a_link_of_another_user_is_none_of_ours(file: Path) -> None:
    link = file.parent / ".wormhole"
    link.symlink_to("/root")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to user"):
        up_folder(file)


def test_the_folder_of_who_owns_the_file_or_may_write_beside_it_is_used(file: Path, tmp_path: Path) -> None:
    folder = planted(file)
    assert up_folder(file, tmp_path / "mine") == tmp_path / "mine"
    os.chown(file, NOBODY, NOBODY)  # its user runs `up`, and root looks
    assert up_folder(file) == folder / "shop"
    os.chown(file, 0, 0)
    file.parent.chmod(0o775)
    assert up_folder(file) == folder / "shop"
