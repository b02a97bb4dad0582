"""The program of docs/admin.md, run at a real publisher."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S, until
from tests.support.pages import Page
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter
from wormhole.admin import Admin
from wormhole.model.errors import UsageError

_APPLICATION = """[applications.cache]
dataset = "shop"
start = "earliest"
subscribers = { s1 = "127.0.0.1:1" }"""


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[PublisherProcess]:
    writer = RocksWriter(tmp_path / "store")
    process = PublisherProcess(tmp_path, f'source = "rocksdb://{writer.path}"', _APPLICATION)
    try:
        process.start()
        until(lambda: process.flow("cache"), process.tail)
        yield process
    finally:
        process.kill()
        writer.exit()


def test_the_program_pauses_and_resumes(publisher: PublisherProcess) -> None:
    program, _ = Page("docs/admin.md", {}).blocks("python")

    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=publisher.config.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    state, change = ran.stdout.splitlines()
    assert state.startswith("cache/db1 unassigned ")
    assert change.startswith("was running -> ")
    assert publisher.history() == ["pause", "resume"]
    with pytest.raises(UsageError, match="did you mean cache/db1"):
        Admin(str(publisher.config)).flow("cahce/db1")
