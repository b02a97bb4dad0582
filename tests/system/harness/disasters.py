"""What can happen to each thing that holds state, done to a running scene."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from tests.system.harness.copied_stores import Postgres
from tests.system.harness.scene import FLOW, Scene, copy_folder, state_of
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host.state_file import read_state

_GARBAGE: Final = b"\x00\xffgarbage\xff" * 64
_FILES: Final = ("markers.sqlite", "markers.sqlite-wal", "markers.sqlite-shm")


# -- database


def database_older(scene: Scene) -> None:
    copy = scene.folder / "backup"
    scene.database.copy_to(copy)
    kept = len(scene.commits)
    scene.commit(5)
    scene.await_marked()
    scene.database.put_back(copy)
    scene.forget_since(kept)
    scene.commit(3)


def database_wiped(scene: Scene) -> None:
    scene.await_marked()
    scene.database.wiped()
    scene.forget_since(0)
    scene.commit(3)


def database_moved(scene: Scene) -> None:
    scene.await_marked()
    scene.database.moved()
    scene.commit(3)


def database_doubled(scene: Scene) -> None:
    """The copy is the database from now on; both were written to."""
    twin = scene.database.clone()
    scene.database.start()
    kept = len(scene.commits)
    scene.commit(5)
    scene.await_marked()
    scene.database.stop()
    scene.forget_since(kept)
    scene.extra.append(scene.database.close)
    scene.database = twin
    twin.start()
    scene.commit(3)
    name_database(scene)
    scene.restart_publisher()


def name_database(scene: Scene) -> None:
    """Write the database's present address into the configuration."""
    scene.configure(source=scene.database.source())


def slots_made_anew(scene: Scene) -> None:
    """While the publisher is stopped, and the database goes on."""
    _without_publisher(scene, _postgres(scene).make_slots_anew)


def slots_moved_on(scene: Scene) -> None:
    _without_publisher(scene, _postgres(scene).advance_slots)


def slot_read(scene: Scene) -> None:
    scene.await_marked()
    reader = _postgres(scene).read_slot()
    scene.extra.append(reader.close)
    scene.commit(3)


def _without_publisher(scene: Scene, does: Callable[[], None]) -> None:
    with _stopped(scene, then=0):
        scene.commit(3)
        does()
        scene.commit(3)


@contextmanager
def _stopped(scene: Scene, *, then: int = 3) -> Iterator[None]:
    """While the publisher is stopped, with everything delivered; so many commits follow once it runs again."""
    scene.await_marked()
    assert scene.publisher.stop() == 0
    yield
    scene.publisher.start()
    scene.commit(then)


def _postgres(scene: Scene) -> Postgres:
    assert isinstance(scene.database, Postgres)
    return scene.database


def log_corrupted(scene: Scene) -> None:
    """A bit of a value that was not read yet."""
    scene.await_marked()
    assert scene.publisher.stop() == 0
    path = scene.database.logs()[-1]
    scene.commit(5)
    shutil.copy(path, scene.folder / "log.good")
    # A server may write the statement before the row. The row itself is damaged.
    flip(path, path.read_bytes().rindex(b"k%07d" % (len(scene.commits) - 3)))
    scene.publisher.start()


def log_put_back(scene: Scene) -> None:
    path = scene.database.logs()[-1]
    with path.open("r+b") as file:
        file.write((scene.folder / "log.good").read_bytes())


def flip(path: Path, offset: int) -> None:
    """Change one bit of a file, in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


# -- marker store


def _markers_copied(scene: Scene) -> Path:
    """A copy of the marker store; more was acknowledged since."""
    scene.await_marked()
    assert scene.publisher.stop() == 0
    copy = scene.folder / "markers-backup"
    copy_folder(scene.state, copy)
    scene.publisher.start()
    scene.commit(5)
    scene.await_marked()
    return copy


def markers_older(scene: Scene) -> None:
    copy = _markers_copied(scene)
    scene.restart_publisher()  # in another epoch
    scene.await_true(lambda: state_of(scene) == "live", lambda: "not live")
    assert scene.publisher.stop() == 0
    put_markers_back(scene, copy)
    scene.publisher.start()
    scene.commit(3)


def markers_older_for_another(scene: Scene) -> None:
    """The subscriber that had the flow in an epoch after the copy does not run any more; another one gets the flow."""
    copy = _markers_copied(scene)
    flow = scene.flow()
    assert flow is not None
    witness = scene.state / "flows.json"  # written once a second
    scene.await_true(lambda: read_state(witness)["epochs"][FLOW] == flow["epoch"], witness.read_text)
    assert scene.publisher.stop() == 0
    put_markers_back(scene, copy)
    scene.end_subscriber(str(flow["subscriber"]))
    scene.publisher.start()
    scene.commit(3)


def put_markers_back(scene: Scene, copy: Path, *, witness: bool = False) -> None:
    """The marker store's files as they are in a copy of the publisher's folder; ``witness``: also ``flows.json``
    beside them."""
    for name in (*_FILES, *(["flows.json"] if witness else [])):
        (scene.state / name).unlink(missing_ok=True)
        if (copy / name).exists():
            shutil.copy(copy / name, scene.state / name)


def markers_wiped(scene: Scene) -> None:
    with _stopped(scene):
        scene.commit(5)
        for name in _FILES:
            (scene.state / name).unlink(missing_ok=True)


def markers_moved(scene: Scene) -> None:
    scene.await_marked()
    scene.configure(markers="zookeeper")
    scene.restart_publisher()
    scene.commit(3)


def markers_doubled(scene: Scene) -> None:
    scene.await_marked()
    scene.side("publisher-2").process.start()


def markers_corrupted(scene: Scene) -> None:
    with _stopped(scene):
        path = scene.state / "markers.sqlite"
        with path.open("r+b") as file:
            for offset in range(0, path.stat().st_size, 1024):
                file.seek(offset)
                file.write(_GARBAGE)


# -- ZooKeeper


def _zookeeper(scene: Scene) -> tuple[EmbeddedZooKeeper, Path]:
    assert scene.zookeeper is not None
    return scene.zookeeper, scene.zookeeper.folder


def zookeeper_older(scene: Scene) -> None:
    _put_zookeeper_back(scene, restart=True)


def zookeeper_older_meanwhile(scene: Scene) -> None:
    """Its owner, whose claim is in the copy, goes on and remembers more than is stored."""
    _put_zookeeper_back(scene, restart=False)


def _put_zookeeper_back(scene: Scene, *, restart: bool) -> None:
    """To where it was before some commits; ``restart``: and before a restart of the publisher."""
    zookeeper, folder = _zookeeper(scene)
    scene.await_marked()
    zookeeper.stop()
    copy = scene.folder / "zookeeper-backup"
    copy_folder(folder / "data", copy)
    zookeeper.start()
    scene.commit(5)
    scene.await_marked()
    if restart:
        scene.restart_publisher()
        scene.await_true(lambda: state_of(scene) == "live", lambda: "not live")
    zookeeper.stop()
    copy_folder(copy, folder / "data")
    zookeeper.start()
    scene.commit(3)


def zookeeper_wiped(scene: Scene) -> None:
    zookeeper, folder = _zookeeper(scene)
    scene.await_marked()
    zookeeper.stop()
    shutil.rmtree(folder / "data")
    zookeeper.start()
    scene.commit(3)


def zookeeper_and_a_host_wiped(scene: Scene) -> None:
    """The host that served the log does not come back, the subscriber is started again, and the configuration is
    applied."""
    zookeeper, folder = _zookeeper(scene)
    scene.await_marked()
    scene.end_subscriber("sub-1")
    zookeeper.stop()
    shutil.rmtree(folder / "data")
    _host_gone(scene)
    zookeeper.start()
    scene.configure()
    scene.commit(3)
    scene.start_subscriber("sub-1")


def zookeeper_moved(scene: Scene) -> None:
    zookeeper, folder = _zookeeper(scene)
    scene.await_marked()
    zookeeper.stop()
    other = EmbeddedZooKeeper(scene.folder / "zookeeper-moved")
    copy_folder(folder / "data", scene.folder / "zookeeper-moved" / "data")
    other.start()
    scene.extra.append(zookeeper.close)
    scene.zookeeper = other
    scene.commit(3)


def name_zookeeper(scene: Scene) -> None:
    assert scene.zookeeper is not None
    scene.configure(zookeeper=scene.zookeeper.hosts)
    scene.restart_publisher()
    scene.restart_subscribers()


def zookeeper_doubled(scene: Scene) -> None:
    """A second ZooKeeper from a copy of the first; a second publisher lives in it."""
    zookeeper, folder = _zookeeper(scene)
    scene.await_marked()
    zookeeper.stop()
    other = EmbeddedZooKeeper(scene.folder / "zookeeper-twin")
    copy_folder(folder / "data", scene.folder / "zookeeper-twin" / "data")
    zookeeper.start()
    other.start()
    scene.extra.append(other.close)
    twin = scene.side("publisher-2", zookeeper=other.hosts, state_dir=str(scene.folder / "state-2"))
    twin.process.start()
    scene.commit(3)


def node_corrupted(path: str) -> Callable[[Scene], None]:
    """Half a JSON text in a node below the root."""

    def does(scene: Scene) -> None:
        assert scene.zookeeper is not None
        scene.await_marked()
        client = KazooClient(scene.zookeeper.hosts)
        client.start()
        client.set(f"/wormhole/{path}", b'{"half": ')
        client.stop()
        client.close()
        scene.commit(3)

    return does


# -- state folder


def state_older(scene: Scene) -> None:
    scene.await_marked()
    assert scene.publisher.stop() == 0
    state = Path(scene.values["state_dir"])
    copy_folder(state, scene.folder / "state-backup")
    scene.publisher.start()
    scene.commit(5)
    scene.await_marked()
    scene.restart_publisher()
    scene.await_true(lambda: state_of(scene) == "live", lambda: "not live")
    assert scene.publisher.stop() == 0
    copy_folder(scene.folder / "state-backup", state)
    scene.publisher.start()
    scene.commit(3)


def state_wiped(scene: Scene) -> None:
    with _stopped(scene):
        scene.commit(5)
        shutil.rmtree(scene.values["state_dir"])


def state_moved(scene: Scene) -> None:
    """The folder went to another place, its configuration with it."""
    scene.await_marked()
    assert scene.publisher.stop() == 0
    state = Path(scene.values["state_dir"])
    state.rename(scene.folder / "state-moved")
    scene.configure(state_dir=str(scene.folder / "state-moved"))
    scene.commit(3)
    scene.publisher.start()


def state_left(scene: Scene) -> None:
    """The configuration names another folder; what was in the old one stayed there."""
    with _stopped(scene):
        scene.commit(5)
        scene.configure(state_dir=str(scene.folder / "state-new"))


def state_doubled(scene: Scene) -> None:
    """A copy with its lock file, and a publisher on it while the first lives."""
    scene.await_marked()
    copy_folder(Path(scene.values["state_dir"]), scene.folder / "state-2")
    scene.side("publisher-2", state_dir=str(scene.folder / "state-2")).process.start()
    scene.commit(3)


def host_wiped(scene: Scene) -> None:
    """One of two hosts, which served the log, is gone; its state folder with it."""
    scene.await_marked()
    _host_gone(scene)
    scene.commit(3)


def _host_gone(scene: Scene) -> None:
    scene.publisher.kill()
    shutil.rmtree(scene.values["state_dir"])


def state_corrupted(scene: Scene) -> None:
    with _stopped(scene):
        scene.commit(3)
        for path in Path(scene.values["state_dir"]).rglob("*.json*"):
            path.write_bytes(_GARBAGE[:40])


# -- relay


def _left_behind(scene: Scene) -> None:
    """The subscriber is away, and what it lacks is in the relay; of a database that keeps its log for the publisher,
    nowhere else."""
    scene.await_marked()
    scene.end_subscriber("sub-1")
    _recorded(scene)


def _recorded(scene: Scene) -> None:
    """Five commits more are in the relay."""
    scene.commit(5)
    recorded = scene.commits[-1].sequence
    if isinstance(scene.database, Postgres):
        database = scene.database

        def held() -> bool:
            database.grow()
            return database.held() > recorded

        scene.await_true(held, lambda: "the database still keeps what the relay holds")
        scene.commit(1)  # the server has this one
        return

    fifth = scene.commits[-1].number

    def written() -> bool:
        if any(_file_with(scene, commit.number) is not None for commit in scene.commits[fifth:]):
            return True
        scene.commit(1)  # a cache may leave out what was read while one reader took over from another
        return False

    scene.await_true(written, lambda: "the relay does not record")


def _file_with(scene: Scene, number: int) -> Path | None:
    """The file of the relay that has this commit."""
    return next((file for file in relay_files(scene) if b"k%07d" % number in file.read_bytes()), None)


def relay_files(scene: Scene) -> list[Path]:
    """The files of the relay, oldest first."""
    return sorted(file for file in scene.relay.rglob("*") if file.is_file() and file.stat().st_size > 64)


def _back(scene: Scene) -> None:
    scene.publisher.start()
    scene.start_subscriber("sub-1")
    scene.commit(3)


def relay_older(scene: Scene) -> None:
    """As it was while the flow lacked half of what it lacks now."""
    _left_behind(scene)
    assert scene.publisher.stop() == 0
    copy_folder(scene.relay, scene.folder / "relay-backup")
    scene.publisher.start()
    _recorded(scene)
    assert scene.publisher.stop() == 0
    copy_folder(scene.folder / "relay-backup", scene.relay)
    _back(scene)


def relay_wiped(scene: Scene) -> None:
    _left_behind(scene)
    assert scene.publisher.stop() == 0
    shutil.rmtree(scene.relay)
    _back(scene)


def relay_wiped_live(scene: Scene) -> None:
    """Under a running publisher."""
    _left_behind(scene)
    for file in scene.relay.rglob("*"):
        if file.is_file():
            file.unlink()
    scene.start_subscriber("sub-1")
    scene.commit(3)


def relay_moved(scene: Scene) -> None:
    """The folder and its configuration."""
    _left_behind(scene)
    assert scene.publisher.stop() == 0
    moved = scene.folder / "relay-moved"
    scene.relay.rename(moved)
    scene.configure(relay_folder=str(moved))
    _back(scene)


def relay_doubled(scene: Scene) -> None:
    """Another publisher on the same folder."""
    _left_behind(scene)
    scene.side("publisher-2", state_dir=str(scene.folder / "state-2")).process.start()
    scene.start_subscriber("sub-1")
    scene.commit(3)


def relay_corrupted(scene: Scene) -> None:
    """A bit of a value that is lacking."""
    _left_behind(scene)
    assert scene.publisher.stop() == 0
    number, path = next((one, file) for one in scene.missing()[1:] if (file := _file_with(scene, one)) is not None)
    flip(path, path.read_bytes().index(b"k%07d" % number))
    _back(scene)


def relay_of_another_history(scene: Scene) -> None:
    """The database comes back older, and the relay has what happened since in the history that was dropped."""
    copy = scene.folder / "backup"
    scene.await_marked()
    scene.end_subscriber("sub-1")
    assert scene.publisher.stop() == 0
    scene.database.copy_to(copy)
    kept = len(scene.commits)
    scene.publisher.start()
    _recorded(scene)
    scene.never = {one.number for one in scene.commits[kept:]}
    assert scene.publisher.stop() == 0
    scene.database.put_back(copy)
    scene.forget_since(kept)
    scene.commit(3)
    _back(scene)


# -- what an operator does then, besides commands


def stop_second(scene: Scene) -> None:
    second = scene.sides["publisher-2"].process
    if second.alive:
        second.stop()


def move_markers_away(scene: Scene) -> None:
    for name in _FILES:
        path = scene.state / name
        if path.exists():
            path.rename(scene.folder / f"away-{name}")
