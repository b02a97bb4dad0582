from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from tests.support.installed_package import put_package
from wormhole.ports import entry_points
from wormhole.ports.entry_points import claims

GROUP = "wormhole.sources"
OURS = {"mariadb", "mysql", "postgres", "postgresql", "rocksdb"}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    claims.cache_clear()
    yield
    claims.cache_clear()


def test_ours_are_found_without_installed_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_points, "entry_points", lambda group: EntryPoints())
    assert set(claims(GROUP)) == OURS


def test_what_was_installed_of_an_earlier_commit_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    put_package(tmp_path, "wormhole-pubsub", GROUP, "mysql", "", "MOVED_SINCE", "0.0.1")
    put_package(tmp_path, "another", GROUP, "rocksdb", "", "OTHER")

    assert [claim.attr for claim in claims(GROUP)["mysql"]] == ["DATASTORE"]
    assert len(claims(GROUP)["rocksdb"]) == 2


@pytest.mark.parametrize(
    "text", [None, "no TOML [", '[project]\nname = "other"\nentry-points."wormhole.sources".x = "a:b"\n']
)
def test_a_folder_beside_that_is_no_checkout_of_ours(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.setattr(entry_points, "_CHECKOUT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(entry_points, "entry_points", lambda group: EntryPoints())
    assert claims(GROUP) == {}
