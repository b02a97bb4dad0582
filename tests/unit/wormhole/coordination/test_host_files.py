"""The files of the static form: whole lines only, bounded, and one clear error for a disk that refuses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wormhole.coordination.host_files import HostFiles
from wormhole.coordination.port import HistoryEntry, HostRequest
from wormhole.model.errors import ConfigError


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
