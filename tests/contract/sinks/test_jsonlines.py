"""The contract of sinks over files of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sinks.jsonlines.kind import KIND
from sinks.port import SinkKind
from sinks.testing.contract import RecordSinkContract
from sinks.testing.harness import RecordHarness

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking


class JsonLinesHarness(RecordHarness):
    """A folder."""

    kind: ClassVar[SinkKind[Any]] = KIND

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": f"jsonlines://{self._folder}"}

    @contextmanager
    def away(self) -> Iterator[None]:
        elsewhere = self._folder.with_name("elsewhere")
        self._folder.rename(elsewhere)
        try:
            yield
        finally:
            elsewhere.rename(self._folder)

    def ids(self) -> Sequence[str]:
        lines = (line for path in sorted(self._folder.iterdir()) for line in path.read_bytes().splitlines())
        return [json.loads(line)["id"] for line in lines]


@pytest.fixture
def harness(tmp_path: Path) -> JsonLinesHarness:
    return JsonLinesHarness(tmp_path / "lines")


class TestJsonLines(RecordSinkContract):
    pass
