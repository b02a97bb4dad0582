from __future__ import annotations

from pathlib import Path

from wormhole.host.state_file import FolderState, read_state, write_state


def test_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert read_state(path) == {}
    write_state(path, {"a": 1})
    write_state(path, {"b": [2]}, sync=False)
    assert read_state(path) == {"b": [2]}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]
    path.write_text("[1]")
    assert read_state(path) == {}
    path.write_text("{")
    assert read_state(path) == {}


def test_damage_is_not_believed_and_a_file_of_an_earlier_release_is(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"highest": 12}')
    assert read_state(path) == {"highest": 12}
    write_state(path, {"highest": 12})
    path.write_text(path.read_text().replace("12", "13"))
    assert read_state(path) == {}


def test_a_folder_has_a_file_for_each_document(tmp_path: Path) -> None:
    state = FolderState(tmp_path)
    assert state.read("histories") == {}
    state.write("histories", {"a": 1})
    assert state.read("histories") == read_state(tmp_path / "histories.json") == {"a": 1}
    assert str(state) == str(tmp_path)
