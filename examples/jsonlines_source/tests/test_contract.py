"""The contract of log sources over this one: ``pip install 'wormhole-pubsub[publisher,testing]'``, then ``pytest``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from wormhole_jsonlines.source import JsonLinesSource

from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.contract import Change, Harness, LogSourceContract, MakeHarness


class JsonLinesHarness(Harness):
    """Writes the file and reads it."""

    bounded_by_bytes = False

    def __init__(self, folder: Path, sharding: Sharding) -> None:
        self.path = folder / "log.jsonl"
        self.sharding = sharding
        self.saved = b""
        self.number, self.seq = 1, 0
        self._begin()
        self._open()

    def _begin(self) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps({"file": self.number, "before": self.seq}) + "\n")
        draft.replace(self.path)

    def _open(self) -> None:
        self.source = JsonLinesSource(self.path, "log", self.sharding)
        self.source.start()

    def commit(self, changes: Sequence[Change]) -> None:
        self.seq += 1
        texts = [[part if isinstance(part, str) else part.decode() for part in change] for change in changes]
        line = {"seq": self.seq, "at_us": time.time_ns() // 1000, "changes": texts}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def rotate(self) -> None:
        pass  # one file, until its writer forgets its lines

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        self.number += 1
        self._begin()
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        self.saved = self.path.read_bytes()

    def lose_tail(self, to: Datamarker) -> None:
        self.path.write_bytes(self.saved)
        self.seq = int(to.delivered)
        self.commit([("put", "a", b"another history", b"1")])

    def close(self) -> None:
        self.source.stop()


@pytest.fixture
def new_harness(tmp_path: Path) -> MakeHarness:
    return partial(JsonLinesHarness, tmp_path)


class TestJsonLines(LogSourceContract):
    pass
