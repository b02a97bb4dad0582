"""What can happen to an archive, done to a running scene; and what is in it afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from spark_replay.archive.store import open_store
from tests.system.harness.archive_rows import rows
from tests.system.harness.disasters import flip, put_markers_back
from tests.system.harness.processes import Process
from tests.system.harness.programs import Command
from tests.system.harness.scene import Scene, copy_folder

_GOOD: Final = "good-copy"


def folder_of(scene: Scene) -> Path:
    return Path(scene.values.get("archive", str(scene.folder / "archive")))


def archived(scene: Scene) -> dict[int, int]:
    """How often each commit is in the archive, by its number."""
    found: dict[int, int] = {}
    store = open_store(str(folder_of(scene)), "shop", copy="main", create=True)
    for shard in store.shards():
        manifest = store.read(shard)
        for entry in manifest.files if manifest is not None else ():
            for update in rows(store, shard, entry.name):
                key = update.key[0]
                assert isinstance(key, bytes)
                number = int(key.decode().removeprefix("k"))
                found[number] = found.get(number, 0) + 1
    return found


def await_archived(scene: Scene) -> None:
    """Until every commit is in the archive, once."""

    def whole() -> bool:
        found = archived(scene)
        return all(found.get(one.number) == 1 for one in scene.commits)

    scene.await_true(whole, lambda: f"archived: {archived(scene)} of {len(scene.commits)}")


def start_archiver(scene: Scene, name: str = "arch") -> Process:
    """Start one; it receives as ``arch``."""
    process = scene.helpers.get(name)
    if process is None:
        process = scene.helpers[name] = Command(name, scene.folder, "archive", "run", "-c", str(scene.config))
    process.start()
    return process


def start(scene: Scene) -> None:
    start_archiver(scene)


def restart(scene: Scene) -> None:
    scene.helpers["arch"].stop()
    start_archiver(scene)


def _stopped(scene: Scene) -> Process:
    """The archiver, stopped when everything was archived."""
    archiver = start_archiver(scene)
    await_archived(scene)
    assert archiver.stop() == 0
    return archiver


def _copied(scene: Scene) -> Process:
    """The archiver, with a copy of the archive beside it; more was archived since."""
    archiver = _stopped(scene)
    copy_folder(folder_of(scene), scene.folder / "archive-backup")
    archiver.start()
    scene.commit(5)
    await_archived(scene)
    return archiver


def older(scene: Scene) -> None:
    archiver = _copied(scene)
    assert archiver.stop() == 0
    copy_folder(scene.folder / "archive-backup", folder_of(scene))
    archiver.start()
    scene.commit(3)


def older_live(scene: Scene) -> None:
    _copied(scene)
    copy_folder(scene.folder / "archive-backup", folder_of(scene))
    scene.commit(3)


def markers_older(scene: Scene) -> None:
    """The marker store of some epochs earlier, under an archiver that remembers none."""
    archiver = start_archiver(scene)
    await_archived(scene)
    assert scene.publisher.stop() == 0
    copy_folder(scene.state, scene.folder / "markers-backup")
    scene.publisher.start()
    copied = _epoch(scene)
    while _epoch(scene) < copied + 3:
        scene.restart_publisher()
        scene.commit(2)
        await_archived(scene)
    assert archiver.stop() == 0
    assert scene.publisher.stop() == 0
    put_markers_back(scene, scene.folder / "markers-backup", witness=True)
    archiver.start()
    scene.publisher.start()
    scene.commit(3)


def _epoch(scene: Scene) -> int:
    """The epoch in which the archive is written."""
    store = open_store(str(folder_of(scene)), "shop", copy="main", create=True)
    return max(manifest.epoch for shard in store.shards() if (manifest := store.read(shard)) is not None)


def wiped(scene: Scene) -> None:
    archiver = _stopped(scene)
    shutil.rmtree(folder_of(scene))
    archiver.start()
    scene.commit(3)


def wiped_live(scene: Scene) -> None:
    start_archiver(scene)
    await_archived(scene)
    shutil.rmtree(folder_of(scene))
    scene.commit(3)


def moved(scene: Scene) -> None:
    archiver = _stopped(scene)
    folder_of(scene).rename(scene.folder / "archive-moved")
    scene.configure(archive=str(scene.folder / "archive-moved"))
    scene.restart_publisher()
    archiver.start()
    scene.commit(3)


def doubled(scene: Scene) -> None:
    start_archiver(scene)
    await_archived(scene)
    start_archiver(scene, "arch-2")
    scene.commit(3)


def data_corrupted(scene: Scene) -> None:
    start_archiver(scene)
    await_archived(scene)
    _damage(scene, next(folder_of(scene).rglob("*.parquet")))
    scene.commit(3)


def manifest_corrupted(scene: Scene) -> None:
    archiver = _stopped(scene)
    _damage(scene, max(folder_of(scene).rglob("manifests/*.json")))
    archiver.start()
    scene.commit(3)


def _damage(scene: Scene, path: Path) -> None:
    shutil.copy(path, scene.folder / _GOOD)
    scene.notes["damaged"] = str(path)
    flip(path, path.stat().st_size // 2)


# -- what an operator does then, besides commands


def put_back(scene: Scene) -> None:
    shutil.copy(scene.folder / _GOOD, scene.notes["damaged"])


def empty(scene: Scene) -> None:
    scene.helpers["arch"].stop()
    shutil.rmtree(folder_of(scene), ignore_errors=True)


def stop_second(scene: Scene) -> None:
    if scene.helpers["arch-2"].alive:
        scene.helpers["arch-2"].stop()
