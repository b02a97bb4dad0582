"""Files of JSON lines: whole documents in order, whatever ends the process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sinks.jsonlines.kind import KIND
from sinks.jsonlines.settings import JsonLinesSettings
from sinks.jsonlines.shard_file import FileGone, ShardFile, finish_left, stem_of
from sinks.port import Sink
from subscriber_sdk import HandlerFailed
from subscriber_sdk.testing import Kit, update
from subscriber_sdk.testing.changes import Change
from wormhole.model.errors import TargetRefused, TargetUnavailable, UsageError
from wormhole.model.findings import Severity

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking


def opened(folder: Path, **more: Any) -> Sink:
    return KIND.open("lines", JsonLinesSettings.model_validate({"url": f"jsonlines://{folder}", **more}))


def row(key: int, text: str = "") -> Change:
    return update("shop.orders", key=key, after={"text": text})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ids(folder: Path) -> list[str]:
    """The id of every document, in the order of the files' names."""
    lines = (line for name in names(folder) for line in (folder / name).read_bytes().splitlines())
    return [json.loads(line)["id"] for line in lines]


def test_a_file_is_finished_when_its_shard_is_revoked(wormhole_kit: Kit, tmp_path: Path) -> None:
    flow = wormhole_kit.attach(opened(tmp_path).subscriber, shard="db1.a/b")
    flow.commit(row(1), row(2))
    flow.commit(row(3))
    assert names(tmp_path) == ["db1%2Ea%2Fb.0000000001.00000001.jsonl.open"]
    flow.revoke()
    assert names(tmp_path) == ["db1%2Ea%2Fb.0000000001.00000001.jsonl"]
    assert ids(tmp_path) == ["test:1:0", "test:1:1", "test:2:0"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_two_sinks_in_one_folder_have_files_of_their_own(wormhole_kit: Kit, tmp_path: Path) -> None:
    one, other = (wormhole_kit.attach(opened(tmp_path, application=name).subscriber) for name in ("one", "other"))
    one.commit(row(1))
    other.commit(row(2))
    one.commit(row(3))
    other.crash_and_redeliver()
    one.revoke()
    first, second, again = names(tmp_path)
    assert again.startswith("shop.0000000002.")
    kept = [
        [json.loads(line)["key"] for line in (tmp_path / name).read_bytes().splitlines()]
        for name in (first, second, again)
    ]
    assert kept == [[[1], [3]], [[2]], [[2]]]


def test_a_file_is_finished_by_size_and_by_age(wormhole_kit: Kit, tmp_path: Path) -> None:
    flow = wormhole_kit.attach(opened(tmp_path, rotate_size="1KiB", rotate_every="1m").subscriber)
    flow.commit(row(1, "x" * 1000))
    assert names(tmp_path) == ["shop.0000000001.00000001.jsonl"]
    flow.commit(row(2))
    wormhole_kit.advance(59)
    assert names(tmp_path)[1:] == ["shop.0000000001.00000002.jsonl.open"]
    wormhole_kit.advance(2)
    assert names(tmp_path)[1:] == ["shop.0000000001.00000002.jsonl"]
    assert ids(tmp_path) == ["test:1:0", "test:2:0"]


@pytest.mark.parametrize(
    "torn", [b'{"id":"test:9', b'{"id":"a"}\n\0\0\0', b"\0" * 9], ids=["half", "zeros", "only zeros"]
)
def test_what_a_dead_process_left_is_cut_to_whole_documents(wormhole_kit: Kit, tmp_path: Path, torn: bytes) -> None:
    left = tmp_path / "shop.0000000007.00000001.jsonl.open"
    left.write_bytes(b'{"id":"first"}\n' + torn)
    wormhole_kit.attach(opened(tmp_path).subscriber)
    assert names(tmp_path) == ["shop.0000000007.00000001.jsonl"]
    assert ids(tmp_path)[0] == "first"


def test_a_file_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    other = ShardFile(tmp_path, "shop", 1, 1)
    other.write(b"{}\n{")
    assert finish_left(tmp_path) == 0
    second = ShardFile(tmp_path, "shop", 1, 1)
    assert second.number == 2
    second.abandon()
    other.abandon()
    assert finish_left(tmp_path) == 1
    assert [(tmp_path / name).read_bytes() for name in names(tmp_path)] == [b"{}\n"]


def test_a_file_that_was_removed_is_noticed_before_the_acknowledgement(tmp_path: Path) -> None:
    file = ShardFile(tmp_path, "shop", 1, 1)
    file.write(b"{}\n")
    (tmp_path / "shop.0000000001.00000001.jsonl.open").unlink()
    with pytest.raises(FileGone):
        file.sync()
    file.abandon()


def test_records_of_a_removed_file_come_again(wormhole_kit: Kit, tmp_path: Path) -> None:
    flow = wormhole_kit.attach(opened(tmp_path).subscriber)
    flow.commit(row(1))
    (tmp_path / names(tmp_path)[0]).unlink()
    flow.commit(row(2))
    assert ids(tmp_path) == ["test:2:0"]
    assert flow.datamarker == flow.end


def test_a_folder_that_is_missing_is_waited_for(wormhole_kit: Kit, tmp_path: Path) -> None:
    """Its file system may be mounted later."""
    with pytest.raises(HandlerFailed) as failed:
        wormhole_kit.attach(opened(tmp_path / "missing").subscriber)
    assert isinstance(failed.value.__cause__, TargetUnavailable)


def test_a_file_in_the_folder_s_place_halts_the_flow(wormhole_kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HandlerFailed) as failed:
        wormhole_kit.attach(opened(tmp_path / "file").subscriber)
    assert isinstance(failed.value.__cause__, TargetRefused)


def test_names_of_files_differ_as_those_of_shards(tmp_path: Path) -> None:
    shards = ["a", "a.b", "a%2Eb", "a/b", "x" * 300, "x" * 301, "é" * 90]
    assert len({stem_of(shard) for shard in shards}) == len(shards)
    for shard in shards:
        (tmp_path / f"{stem_of(shard)}.0000000001.00000001.jsonl.open").touch()


def test_documents_go_to_standard_output(wormhole_kit: Kit, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sink = KIND.open("lines", JsonLinesSettings.model_validate({"url": "jsonlines:-"}))
    flow = wormhole_kit.attach(sink.subscriber)
    flow.commit(row(1), row(2))
    assert [json.loads(line)["id"] for line in capfdbinary.readouterr().out.splitlines()] == ["test:1:0", "test:1:1"]
    assert flow.datamarker == flow.end


@pytest.mark.parametrize(
    "url", ["jsonlines:folder", "jsonlines://host/folder", "jsonlines:///f?x=1", "jsonlines:///f%00", "jsonlines:"]
)
def test_a_url_is_an_absolute_folder_or_a_hyphen(url: str) -> None:
    with pytest.raises(ValueError, match="jsonlines:///absolute/folder"):
        JsonLinesSettings.model_validate({"url": url})


def test_a_key_without_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="password_file"):
        opened(tmp_path, password_file=str(tmp_path / "password"))
    with pytest.raises(UsageError, match="rotate_size"):
        KIND.open("lines", JsonLinesSettings.model_validate({"url": "jsonlines:-", "rotate_size": "1MiB"}))


async def test_what_the_folder_holds_is_examined(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "b.jsonl.open").touch()
    report = await opened(tmp_path).examine()
    assert report.severity is Severity.OK
    assert report.facts["folder"] == os.fspath(tmp_path)
    with pytest.raises(TargetUnavailable):
        await opened(tmp_path / "missing").examine()
