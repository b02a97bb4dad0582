"""An archive's folder in which another writer wrote: one message, nothing outside of it is read or deleted, little is
held."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_replay.archive import storage
from spark_replay.archive.json_checksum import with_checksum
from spark_replay.archive.layout import manifest_path
from spark_replay.archive.manifest import Manifest, manifest_from_json, manifest_to_json
from spark_replay.archive.retention import expire
from spark_replay.archive.store import ArchiveStore, open_store
from tests.support.archives import manifest_given, manifest_of, put, tx, write_archive
from tests.support.command_line import run
from wormhole.model.errors import ArchiveError, WormholeError


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return write_archive(tmp_path / "archive", {"a": [[tx(put(b"k1", b"v1"))], [tx(put(b"k2", b"v2"))]]})


def _newest(store: ArchiveStore) -> Path:
    return Path(store.to) / manifest_path("a", manifest_of(store).version)


def _with(store: ArchiveStore, change: Callable[[Manifest], dict[str, object]]) -> None:
    """Replace the newest manifest by what ``change`` makes of it, with a right checksum."""
    manifest = manifest_of(store)
    _newest(store).write_bytes(with_checksum({**manifest_given(manifest), **change(manifest)}))


@pytest.mark.parametrize(
    "name", ["../x.parquet", "/etc/passwd", "..", ".", "a/b", "a\\b", ".hidden", "", "x\0y", "x\n", "\x1b[2J", "\u202e"]
)
def test_no_file_outside_is_named(store: ArchiveStore, name: str) -> None:
    def renamed(manifest: Manifest) -> dict[str, object]:
        files = manifest_given(manifest)["files"]
        return {"files": [{**files[0], "name": name}, *files[1:]]}

    _with(store, renamed)
    with pytest.raises(ArchiveError, match="is no name of a file"):
        store.read("a")


@pytest.mark.parametrize("number", [-1, 1 << 64, 1e300, True, "7", None, []])
@pytest.mark.parametrize("field", ["rows", "bytes", "raw", "merged"])
def test_no_number_is_taken_that_cannot_be(store: ArchiveStore, field: str, number: object) -> None:
    def counted(manifest: Manifest) -> dict[str, object]:
        files = manifest_given(manifest)["files"]
        return {"files": [{**files[0], field: number}, *files[1:]]}

    _with(store, counted)
    with pytest.raises(ArchiveError, match="is no manifest"):
        store.read("a")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000,
        b'{"format":' * 100_000,
        b'{"format":' + b"9" * 10_000 + b"}",
        b'{"format":Infinity}',
        b"",
        b"\0" * 100_000,
        b"\xff\xfe",
        b'{"format":1,"files":{}}',
    ],
)
@pytest.mark.parametrize("name", ["archive.json", "manifest"])
def test_what_is_no_json_of_ours_is_one_short_message(store: ArchiveStore, name: str, data: bytes) -> None:
    path = Path(store.to) / name if name != "manifest" else _newest(store)
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as told:
        open_store(store.to, "orders").read("a")
    assert len(str(told.value)) < 1000
    assert path.name in str(told.value)


def test_a_manifest_without_an_end_is_not_read_to_it(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MOST_BYTES", 8 << 20)
    taken: list[int] = []

    class _Counted(bytearray):
        def __iadd__(self, more: bytes) -> _Counted:  # type: ignore[override,misc]
            taken.append(len(more))
            super().extend(more)
            return self

    monkeypatch.setattr(storage, "bytearray", _Counted, raising=False)
    os.truncate(_newest(store), 1 << 40)
    with pytest.raises(ArchiveError, match="has more than 8 MiB"):
        store.read("a")
    assert sum(taken) <= 10 << 20


@pytest.mark.parametrize("where", ["archive.json", "garbage.json"])
def test_a_pipe_blocks_nobody(store: ArchiveStore, where: str) -> None:
    path = Path(store.to) / "a" / where if where == "garbage.json" else Path(store.to) / where
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(ArchiveError, match="is no file"):
        expire(open_store(store.to, "orders"), None, 0)


def test_a_link_in_place_of_the_checkpoints_has_nothing_deleted_elsewhere(store: ArchiveStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious.json").write_text("somebody's")
    (Path(store.to) / "a" / "checkpoints").symlink_to(victim)
    with pytest.raises(WormholeError, match="leads out of the archive"):
        expire(store, None, 0)
    with pytest.raises(WormholeError, match="leads out of the archive"):
        store.delete_checkpoint("a", "precious.json")
    assert (victim / "precious.json").read_text() == "somebody's"


@pytest.mark.parametrize("folder", ["a/data", "a/manifests", "a"])
def test_a_link_has_nothing_deleted_elsewhere(store: ArchiveStore, tmp_path: Path, folder: str) -> None:
    victim, linked = tmp_path / "victim", Path(store.to) / folder
    linked.rename(victim)
    (victim / "precious.parquet").write_text("somebody's")
    before = sorted(one.name for one in victim.rglob("*"))
    linked.symlink_to(victim)
    with pytest.raises(WormholeError, match="leads out of the archive"):
        expire(store, None, 0)
    with pytest.raises(WormholeError, match="leads out of the archive"):
        store.delete_data("a", "precious.parquet") if folder != "a/manifests" else store.read("a")
    assert sorted(one.name for one in victim.rglob("*")) == before


def test_the_archive_itself_may_be_behind_a_link(store: ArchiveStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.to)
    assert open_store(str(tmp_path / "link"), "orders").read("a") is not None


def test_a_manifest_is_read_as_it_was_written(store: ArchiveStore) -> None:
    manifest = manifest_of(store)
    assert manifest_from_json(manifest_to_json(manifest), "x") == manifest
    assert run("archive", "show", "--help")[0] == 0
