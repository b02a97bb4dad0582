"""The folder of a relay, as it is configured and found."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from publisher.relay.configured import ConfiguredRelay, configured_relay, left_relay
from publisher.relay.disk import DISK
from publisher.relay.files import LOCK
from publisher.relay.folder import look, trim, verify
from publisher.relay.settings import RelayIdentity, RelaySettings
from tests.support.present import present
from tests.support.relay_scene import FilesScene
from wormhole.config import parse
from wormhole.model.errors import SourceUnavailable, UsageError

# --- A relay's folder as a command reads it: nothing is changed, damage is found, and the oldest files go


@pytest.fixture
def scene(tmp_path: Path) -> FilesScene:
    """Files that were completed, and one that is being written."""
    made = FilesScene(tmp_path / "relay", file_bytes=1000)
    made.files.begin(made.start)
    for rows in (10, 10, 10, 1):
        made.recorded(rows=rows, size=100)
    return made


def nothing(done: int, total: int) -> None:
    assert done <= total


def test_a_look_and_a_whole_reading_find_the_same(scene: FilesScene) -> None:
    made = scene.files.files
    before = {path: path.read_bytes() for path in scene.folder.iterdir()}
    seen: list[tuple[int, int]] = []
    for found in (look(scene.folder), verify(scene.folder, lambda *done: seen.append(done))):
        assert [one.path for one in found] == [one.path for one in made]
        assert [one.begin for one in found] == [one.begin for one in made]
        assert [one.end for one in found] == [one.end.order for one in made]
        assert sum(one.log_bytes for one in found) == scene.files.log_bytes
        assert [one.error for one in found] == [""] * len(made)
    size = sum(one.bytes for one in made)
    assert seen[-1] == (size, size)
    assert {path: path.read_bytes() for path in scene.folder.iterdir()} == before


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert look(tmp_path / "none") == []


def test_each_damage_is_found_in_its_file(scene: FilesScene) -> None:
    scene.files.close()
    first, second, *_ = sorted(scene.folder.glob("*.wrf"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    second.write_bytes(b"no relay file")
    found = verify(scene.folder, nothing)
    assert found[0].error.startswith("behind byte ")
    assert found[1].error == "the file does not begin as a relay file"
    assert not found[-1].error
    assert [bool(one.error) for one in look(scene.folder)][:2] == [False, True], "an index is believed"


def test_the_end_of_a_file_that_is_written_is_no_damage(scene: FilesScene) -> None:
    last = scene.files.files[-1]
    with last.path.open("ab") as file:
        file.write(b"half a record")
    state = verify(scene.folder, nothing)[-1]
    assert (state.error, state.end) == ("", last.end.order)
    assert state.unfinished == 13


def test_a_file_of_another_release_says_so(scene: FilesScene) -> None:
    first = scene.files.files[0].path
    data = bytearray(first.read_bytes())
    data[8] = 99
    first.write_bytes(data)
    assert look(scene.folder)[0].error == "it is of another release: format version 99 instead of 1"


def test_the_oldest_files_go_and_only_while_nobody_writes(scene: FilesScene) -> None:
    with pytest.raises(UsageError, match="a publisher has"):
        trim(scene.folder, 0)
    scene.files.close()
    sizes = [one.bytes for one in look(scene.folder)]
    assert trim(scene.folder, sum(sizes)) == 0
    assert trim(scene.folder, sum(sizes) - 1) == sizes[0]
    lost = scene.folder / "1.lost"
    lost.write_text("keys")
    assert trim(scene.folder, 0) == sum(sizes[1:])
    assert not lost.exists()
    assert look(scene.folder) == []
    with closing(DISK.lock(scene.folder / LOCK)):
        pass


def test_a_disk_that_does_not_answer_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (look, lambda folder: trim(folder, 0)):
        with pytest.raises(SourceUnavailable, match="cannot be read"):
            command(tmp_path / "file")


# --- What a relay is opened with, from a configuration


HERE = Path("/srv")


def opened_with(*settings: str, source: str = "postgres://w@db/shop") -> ConfiguredRelay | None:
    head = ["version = 1", "[publisher]", 'state_dir = "state"', "[datasets.shop.copies.main.logs.db1]"]
    text = "\n".join([*head, f'source = "{source}"', *settings])
    return configured_relay(parse(text, "site.toml", folder=HERE), "shop", "main", "db1")


def test_the_defaults() -> None:
    assert opened_with() == (
        HERE / "state/shop/main/db1/relay",
        RelayIdentity("shop/main/db1", "postgres", "log", 64 << 20, ""),
        RelaySettings("hold", 8 << 30, 1 << 30, "lose", True),
    )
    assert opened_with(source="mysql://w@db") is None


def test_what_is_configured() -> None:
    settings = ['slot_budget = "2GiB"', 'on_relay_full = "keep_slot"', 'relay_compression = "none"']
    found = present(opened_with(*settings, 'relay_budget = "1GiB"', 'relay_folder = "disk"'))
    assert (found.folder, found.settings) == (
        HERE / "disk",
        RelaySettings("hold", 1 << 30, 2 << 30, "keep_slot", False),
    )
    cached = present(opened_with('relay = "cache"', source="mysql://w@db"))
    assert cached.settings == RelaySettings("cache", 8 << 30)


def test_what_a_relay_left_that_was_turned_off(tmp_path: Path) -> None:
    text = 'version = 1\n[datasets.shop.copies.main.logs.db1]\nsource = "postgres://w@db/shop"\n'
    config = parse(f'{text}relay = "off"\nrelay_folder = "{tmp_path}/relay"', "site.toml", folder=HERE)
    assert left_relay(config, "shop", "main", "db1") is None
    (tmp_path / "relay").mkdir()
    assert left_relay(config, "shop", "main", "db1") is None
    (tmp_path / "relay" / "relay-00000000000000000007.wrf").write_bytes(b"x")
    found = present(left_relay(config, "shop", "main", "db1"))
    assert (found.settings.mode, found.settings.budget) == ("off", 8 << 30)
    assert configured_relay(config, "shop", "main", "db1") is None
