"""The contract of sinks over this one: ``pip install 'wormhole-pubsub[cli,testing]'``, then ``pytest``."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from wormhole_changelog.kind import KIND

from sinks.port import SinkKind
from sinks.testing.contract import RecordSinkContract
from sinks.testing.harness import TABLES, RecordHarness
from subscriber_sdk.testing import update


class ChangelogHarness(RecordHarness):
    """A folder for the file."""

    kind: ClassVar[SinkKind[Any]] = KIND
    refused = update(TABLES[0], key=7, after={"text": "x" * (1 << 20)})

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": f"changelog://{self._folder}/changes.db"}

    @contextmanager
    def away(self) -> Generator[None]:
        elsewhere = self._folder.rename(self._folder.with_name("elsewhere"))
        try:
            yield
        finally:
            elsewhere.rename(self._folder)

    def ids(self) -> Sequence[str]:
        with closing(sqlite3.connect(self._folder / "changes.db")) as database:
            return [id_ for (id_,) in database.execute("SELECT id FROM changes ORDER BY number")]


@pytest.fixture
def harness(tmp_path: Path) -> ChangelogHarness:
    return ChangelogHarness(tmp_path / "changelog")


class TestChangelog(RecordSinkContract):
    pass
