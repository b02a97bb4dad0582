from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.support.installed_package import put_package
from wormhole.ports.entry_points import CHECKOUT, claims, declared, merged

GROUP = "wormhole.sources"
OURS = {"mariadb", "mysql", "postgres", "postgresql", "rocksdb"}


def test_ours_are_found_without_installed_metadata() -> None:
    assert set(merged((), declared(CHECKOUT, GROUP))) == OURS


def test_what_was_installed_of_an_earlier_commit_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_package(tmp_path / "1", monkeypatch, "wormhole-pubsub", GROUP, "mysql", "", "MOVED_SINCE", "0.0.1")
    put_package(tmp_path / "2", monkeypatch, "another", GROUP, "rocksdb", "", "OTHER")
    assert [claim.attr for claim in claims(GROUP)["mysql"]] == ["DATASTORE"]
    assert len(claims(GROUP)["rocksdb"]) == 2


@pytest.mark.parametrize(
    "text", [None, "no TOML [", '[project]\nname = "other"\nentry-points."wormhole.sources".x = "a:b"\n']
)
def test_a_folder_beside_that_is_no_checkout_of_ours(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    if text is not None:
        file.write_text(text)
    installed = EntryPoint("x", "a:b", GROUP)
    assert merged([installed], declared(file, GROUP)) == {"x": (installed,)}
