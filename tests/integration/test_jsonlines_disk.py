"""A sink of JSON lines on a file system of its own, which becomes full or read-only: nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinks.jsonlines.kind import KIND
from sinks.jsonlines.settings import JsonLinesSettings
from subscriber_sdk import HandlerFailed, Subscriber
from subscriber_sdk.testing import Kit, update
from subscriber_sdk.testing.changes import Change
from tests.support.small_disk import remount, small_disk
from wormhole.model.errors import TargetRefused, TargetUnavailable

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a file system of 64 KiB."""
    with small_disk(tmp_path / "disk", "64k") as folder:
        yield folder


def sink(folder: Path) -> Subscriber:
    return KIND.open("lines", JsonLinesSettings.model_validate({"url": f"jsonlines://{folder}"})).subscriber


def row(key: int, size: int = 1) -> Change:
    return update("shop.orders", key=key, after={"text": "x" * size})


def ids(folder: Path) -> list[str]:
    """The id of every whole document."""
    lines = (line for path in sorted(folder.iterdir()) for line in path.read_bytes().split(b"\n")[:-1])
    return [json.loads(line)["id"] for line in lines]


def test_a_full_disk_is_waited_for_and_leaves_whole_documents(wormhole_kit: Kit, disk: Path) -> None:
    flow = wormhole_kit.attach(sink(disk))
    flow.commit(row(1))
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(row(2, 40_000), row(3, 40_000))
    cause = failed.value.__cause__
    assert isinstance(cause, TargetUnavailable)  # it is tried again, until the kit ends that
    assert "make room" in str(cause.hint)
    assert ids(disk) == ["test:1:0"], "what did not fit is not half there"
    remount(disk, "size=1m")
    flow.crash_and_redeliver()
    assert ids(disk) == ["test:1:0", "test:2:0", "test:2:1"]
    assert flow.datamarker == flow.end


def test_a_read_only_disk_halts_the_flow_until_it_is_corrected(wormhole_kit: Kit, disk: Path) -> None:
    remount(disk, "ro")
    with pytest.raises(HandlerFailed) as failed:
        wormhole_kit.attach(sink(disk)).commit(row(1))
    cause = failed.value.__cause__
    assert isinstance(cause, TargetRefused)
    assert (cause.code, bool(cause.hint)) == ("target-refused", True)
    remount(disk, "rw")
    flow = wormhole_kit.attach(sink(disk))
    flow.commit(row(1))
    assert ids(disk) == ["test:1:0"]
