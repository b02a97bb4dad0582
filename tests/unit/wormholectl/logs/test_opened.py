from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest

from wormhole.model.errors import SourceUnavailable
from wormhole.ports.datastore import Login
from wormholectl.logs import opened


def test_the_folder_is_beside_the_database_where_we_may_and_goes_with_the_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened._state_folder(tmp_path / "store") as folder:
        assert folder.parent == tmp_path
    with pytest.raises(SourceUnavailable), opened.open_log(f"rocksdb://{tmp_path}/none", Login()):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with opened._state_folder(tmp_path / "store") as folder:
        assert folder.parent != tmp_path
    assert not folder.exists()
    with opened._state_folder(None) as folder:
        assert folder.parent == Path(tempfile.gettempdir())


def test_what_a_killed_tail_left_is_cleared_away_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_SETTLED_S", -1.0)
    left = tmp_path / ".wormhole-tail-left"
    left.mkdir()
    (left / "000004.log").write_bytes(b"x")
    with opened._state_folder(tmp_path / "store") as first:
        assert not left.exists()
        with opened._state_folder(tmp_path / "store") as second:
            assert first.exists()
            assert first != second
    monkeypatch.setattr(opened, "_SETTLED_S", 60.0)
    left.mkdir()
    with opened._state_folder(tmp_path / "store"):
        assert left.exists()


def test_sigterm_is_an_interruption_while_it_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), opened._terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
