"""The versions on docs/upgrade.md are those of the code."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from publisher.stores.markers.local import LocalMarkerStore
from spark_replay.archive.columns import FORMAT
from tests.support.pages import Page
from wormhole.config.load import parse
from wormhole.push.session import MAX_VERSION, MIN_VERSION

_TEXT = Page("docs/upgrade.md", {}).text


def _stated(pattern: str) -> tuple[int, ...]:
    found = re.search(pattern, _TEXT)
    assert found, pattern
    return tuple(map(int, found.groups()))


def test_the_push_protocol() -> None:
    assert _stated(r"\| publisher, subscriber \| (\d) \|") == (MIN_VERSION,) == (MAX_VERSION,)


def test_the_archive() -> None:
    assert _stated(r"\*\*The archive\*\*: format (\d)") == (FORMAT,)


def test_the_marker_store(tmp_path: Path) -> None:
    store = LocalMarkerStore(tmp_path)
    store.open()
    store.close()

    with sqlite3.connect(tmp_path / "markers.sqlite") as database:
        assert database.execute("PRAGMA user_version").fetchone() == _stated(r"\*\*`markers.sqlite`\*\*: format (\d)")


def test_the_configuration_file() -> None:
    [version] = _stated(r"\*\*The configuration file\*\*: `version = (\d)`")

    parse(f"version = {version}\n[coordinator]\nstatic = true\n", "shop.toml")
