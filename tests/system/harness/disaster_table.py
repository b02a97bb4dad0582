"""The table of docs/disasters.md: what can happen to what, what is reported then, and what gets on.

``tests/system/test_disasters.py`` does every row to real processes; ``scripts/disasters.py`` writes the page from the
same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tests.system.harness import archive_disasters as archives
from tests.system.harness import disasters as does
from tests.system.harness.scene import Scene, Setting

THINGS: Final = ("database", "marker store", "ZooKeeper", "archive", "state folder", "relay", "host")
DISASTERS: Final = ("older copy restored", "wiped", "moved", "doubled", "corrupted")


class Seen(Enum):
    """Where an operator or an application sees something."""

    LOSS = "`on_data_loss`"
    HELD = "flow `held`"
    DOCTOR = "`doctor`"
    WHY_LAG = "`why-lag`"
    ENDED = "the process ends"
    LOG = "the publisher's log"
    COMMAND = "the command"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that is seen.

    ``text``: part of it, of a loss its kind. ``at``: which process or which command, where not the usual."""

    seen: Seen
    text: str = ""
    at: str = ""

    def __str__(self) -> str:
        match self.seen:
            case Seen.NOTHING:
                return f"nothing: {self.text}"
            case Seen.LOSS:
                return f"{self.seen.value} ({self.text.upper()})"
            case Seen.COMMAND:
                return f"`{self.at}`: “{self.text}”"
            case Seen.ENDED | Seen.LOG if self.at:
                what = "ends" if self.seen is Seen.ENDED else "says"
                return f"{_PROCESSES[self.at]} {what}: “{self.text}”"
            case _:
                return f"{self.seen.value}: “{self.text}”"


_PROCESSES: Final = {"publisher-2": "the second publisher", "arch": "the archiver", "arch-2": "the second archiver"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One row. ``what``: what exactly happens; ``way``: what the operator does, in order, as the page says it.

    ``setting`` is ``None`` for what makes no sense; then ``what`` says why. ``quick``: part of ``make test``.
    ``archived``: the count is that of the archive.
    """

    thing: str
    disaster: str
    what: str
    setting: Setting | None = None
    do: Callable[[Scene], None] | None = None
    signs: tuple[Sign, ...] = ()
    way: tuple[str, ...] = ()
    quick: bool = False
    archived: bool = False

    @property
    def name(self) -> str:
        """The test's id, and the key under which its seconds are kept."""
        where = "no test" if self.setting is None else str(self.setting)
        return f"{self.thing}: {self.disaster}: {where}: {self.what}"


STEPS: Final[dict[str, Callable[[Scene], None]]] = {
    "restart the publisher": Scene.restart_publisher,
    "restart the subscribers": Scene.restart_subscribers,
    "write the new address into `source`": does.name_database,
    "write the new address into `coordinator.zookeeper`": does.name_zookeeper,
    "put the log's file back from a copy": does.log_put_back,
    "stop the second publisher": does.stop_second,
    "move `markers.sqlite`, `markers.sqlite-wal` and `markers.sqlite-shm` away": does.move_markers_away,
    "restart the archiver": archives.restart,
    "stop the archiver, empty its folder": archives.empty,
    "start the archiver": archives.start,
    "put the file back from a copy": archives.put_back,
    "give the second archiver an archive of its own, or stop it": archives.stop_second,
}
"""What a row's way may say besides ``wormholectl`` commands, and what the test does then."""

_ACCEPT: Final = "wormholectl flows accept-loss app/db1 --yes"
_MARIADB, _MYSQL, _ROCKSDB = Setting("mariadb"), Setting("mysql"), Setting("rocksdb")
_POSTGRES = Setting("postgres")
_HOLD, _CACHE = Setting("postgres", relay="hold"), Setting("mariadb", relay="cache")
_FLEET = Setting("mariadb", "local", "zookeeper")
_ALL_IN_ZOOKEEPER = Setting("mariadb", "zookeeper", "zookeeper")
_TWO_HOSTS = Setting("mariadb", "zookeeper", "zookeeper", hosts=2)
_ARCHIVED = Setting("rocksdb", archive=True)

_DIVERGED = Sign(Seen.LOSS, "diverged")
_PURGED = Sign(Seen.LOSS, "purged")
_NO_MARKER = Sign(Seen.HELD, "its datamarker is missing")
_PUT_BACK = Sign(Seen.LOG, "what is stored of the log is older than it was")
_REPEATED = Sign(Seen.NOTHING, "what came after the copy is delivered again")


def _database() -> list[Cell]:
    found = []
    for setting in (_MARIADB, _MYSQL, _POSTGRES, _ROCKSDB):
        found += [
            Cell(
                "database",
                "older copy restored",
                "the data as it was some transactions earlier, other transactions follow",
                setting,
                does.database_older,
                (_DIVERGED, Sign(Seen.WHY_LAG, "the application halts at a data loss")),
                (_ACCEPT,),
                quick=setting is _MARIADB,
            ),
            Cell(
                "database",
                "wiped",
                "a new, empty one at the same address",
                setting,
                does.database_wiped,
                (_DIVERGED, Sign(Seen.WHY_LAG, "the application halts at a data loss")),
                (_ACCEPT,),
            ),
            Cell(
                "database",
                "moved",
                "the same data at another address",
                setting,
                does.database_moved,
                (Sign(Seen.DOCTOR, "nothing of its log is delivered"),),
                ("write the new address into `source`", "restart the publisher"),
            ),
            Cell(
                "database",
                "doubled",
                "a copy of the data becomes the database; both were written to",
                setting,
                does.database_doubled,
                (_DIVERGED,),
                (_ACCEPT,),
            ),
        ]
    for setting in (_MARIADB, _MYSQL, _ROCKSDB):
        found += [
            Cell(
                "database",
                "corrupted",
                "a byte of the log that was not read yet; a good copy of the file is there",
                setting,
                does.log_corrupted,
                (Sign(Seen.HELD, "checksum"), Sign(Seen.WHY_LAG, "checksum")),
                ("put the log's file back from a copy", "restart the publisher"),
            ),
            Cell(
                "database",
                "corrupted",
                "a byte of the log that was not read yet; no copy of the file",
                setting,
                does.log_corrupted,
                (Sign(Seen.HELD, "checksum"), Sign(Seen.WHY_LAG, "checksum")),
                ("wormholectl markers set app/db1 latest --yes",),
            ),
        ]
    return [
        *found,
        Cell(
            "database",
            "older copy restored",
            "the data as it was some transactions earlier; the relay has the history that was dropped",
            _CACHE,
            does.relay_of_another_history,
            (Sign(Seen.LOG, "the relay is not used, for it is of another log"), _DIVERGED),
            (_ACCEPT,),
        ),
        Cell(
            "database",
            "wiped",
            "the replication slots dropped while the publisher is stopped, and made again",
            _POSTGRES,
            does.slots_made_anew,
            (_PURGED, Sign(Seen.WHY_LAG, "the application halts at a data loss")),
            (_ACCEPT,),
        ),
        Cell(
            "database",
            "moved",
            "the replication slots moved on by hand while the publisher is stopped",
            _POSTGRES,
            does.slots_moved_on,
            (_PURGED,),
            (_ACCEPT,),
        ),
        Cell(
            "database",
            "doubled",
            "another program reads the replication slot `_held`",
            _POSTGRES,
            does.slot_read,
            (Sign(Seen.NOTHING, "each reader has a copy of the slot"),),
        ),
    ]


def _marker_store() -> list[Cell]:
    found = []
    for setting in (_MARIADB, _POSTGRES, _ROCKSDB):
        found += [
            Cell(
                "marker store",
                "older copy restored",
                "`markers.sqlite` as it was one restart earlier",
                setting,
                does.markers_older,
                (_REPEATED,),
            ),
            Cell(
                "marker store",
                "wiped",
                "`markers.sqlite` deleted",
                setting,
                does.markers_wiped,
                (_NO_MARKER, Sign(Seen.DOCTOR, "held: app/db1")),
                (_ACCEPT,),
                quick=setting is _ROCKSDB,
            ),
            Cell(
                "marker store",
                "corrupted",
                "`markers.sqlite` overwritten; no backup",
                setting,
                does.markers_corrupted,
                (Sign(Seen.ENDED, "file is not a database"), Sign(Seen.DOCTOR, "no publisher serves it")),
                (
                    "move `markers.sqlite`, `markers.sqlite-wal` and `markers.sqlite-shm` away",
                    "restart the publisher",
                    _ACCEPT,
                ),
            ),
        ]
    return [
        *found,
        Cell(
            "marker store",
            "moved",
            '`markers = "local"` becomes `"zookeeper"`, without the datamarkers',
            _FLEET,
            does.markers_moved,
            (_NO_MARKER,),
            (_ACCEPT,),
        ),
        Cell(
            "marker store",
            "older copy restored",
            "`markers.sqlite` and `flows.json` as they were several epochs earlier; the archiver is started again too",
            _ARCHIVED,
            archives.markers_older,
            (Sign(Seen.LOG, "archive/db1 was refused"),),
            archived=True,
        ),
        Cell(
            "marker store",
            "older copy restored",
            "`markers.sqlite` as it was one epoch earlier; another subscriber gets the flow then",
            Setting("rocksdb", subscribers=2),
            does.markers_older_for_another,
            (Sign(Seen.LOG, "an older copy of the store was restored"),),
        ),
        Cell(
            "marker store",
            "doubled",
            "a second publisher with the same `state_dir`",
            _ROCKSDB,
            does.markers_doubled,
            (Sign(Seen.ENDED, "is in use by process", "publisher-2"),),
        ),
        Cell(
            "marker store",
            "corrupted",
            "a record in ZooKeeper is half a JSON text",
            _ALL_IN_ZOOKEEPER,
            does.node_corrupted("applications/app/markers/db1"),
            (Sign(Seen.HELD, "holds no valid datamarker"), Sign(Seen.DOCTOR, "held: app/db1")),
            (_ACCEPT,),
        ),
        Cell(
            "marker store",
            "corrupted",
            "a record in ZooKeeper is half a JSON text",
            _TWO_HOSTS,
            does.node_corrupted("applications/app/markers/db1"),
            (Sign(Seen.HELD, "holds no valid datamarker"), Sign(Seen.DOCTOR, "held: app/db1")),
            (_ACCEPT,),
        ),
    ]


def _zookeeper() -> list[Cell]:
    found = [
        Cell(
            "ZooKeeper",
            "wiped",
            "empty at the same address",
            _TWO_HOSTS,
            does.zookeeper_wiped,
            (Sign(Seen.DOCTOR, "no publisher is registered"),),
            ("wormholectl config apply --yes", _ACCEPT),
        ),
        Cell(
            "ZooKeeper",
            "wiped",
            "empty at the same address, the configuration applied again; the host that served the log is gone and the "
            "subscriber was restarted",
            _TWO_HOSTS,
            does.zookeeper_and_a_host_wiped,
            (Sign(Seen.HELD, "app/db1 was served before"),),
            (_ACCEPT,),
        ),
    ]
    for setting in (_FLEET, _ALL_IN_ZOOKEEPER):
        found += [
            Cell(
                "ZooKeeper",
                "older copy restored",
                "its data as it was one restart of the publisher earlier",
                setting,
                does.zookeeper_older,
                (_REPEATED if setting is _ALL_IN_ZOOKEEPER else Sign(Seen.NOTHING, "the flows go on"),),
            ),
            Cell(
                "ZooKeeper",
                "older copy restored",
                "its data as it was some datamarkers earlier, under a running publisher",
                setting,
                does.zookeeper_older_meanwhile,
                (_PUT_BACK if setting is _ALL_IN_ZOOKEEPER else Sign(Seen.NOTHING, "the flows go on"),),
            ),
            Cell(
                "ZooKeeper",
                "wiped",
                "empty at the same address",
                setting,
                does.zookeeper_wiped,
                (Sign(Seen.DOCTOR, "no publisher is registered"),),
                ("wormholectl config apply --yes", *((_ACCEPT,) if setting is _ALL_IN_ZOOKEEPER else ())),
            ),
            Cell(
                "ZooKeeper",
                "moved",
                "its data at another address",
                setting,
                does.zookeeper_moved,
                (Sign(Seen.DOCTOR, "does not answer"),),
                (
                    "write the new address into `coordinator.zookeeper`",
                    "restart the publisher",
                    "restart the subscribers",
                ),
            ),
            Cell(
                "ZooKeeper",
                "doubled",
                "a second one from a copy of the data, and a second publisher that uses it",
                setting,
                does.zookeeper_doubled,
                (
                    Sign(
                        Seen.NOTHING, "no subscriber registers in the second ZooKeeper, so its publisher serves no flow"
                    ),
                ),
                ("stop the second publisher",),
            ),
        ]
    return [
        *found,
        Cell(
            "ZooKeeper",
            "corrupted",
            "an application's node is half a JSON text",
            _FLEET,
            does.node_corrupted("applications/app"),
            (Sign(Seen.DOCTOR, "/wormhole/applications/app"),),
            ("wormholectl config apply --yes",),
        ),
        Cell(
            "ZooKeeper",
            "corrupted",
            "a dataset's node is half a JSON text",
            _FLEET,
            does.node_corrupted("datasets/shop"),
            (Sign(Seen.DOCTOR, "/wormhole/datasets/shop"),),
            ("wormholectl config apply --yes",),
        ),
    ]


def _archive() -> list[Cell]:
    def cell(disaster: str, what: str, do: Callable[[Scene], None], *signs: Sign, way: tuple[str, ...] = ()) -> Cell:
        return Cell("archive", disaster, what, _ARCHIVED, do, signs, way, archived=True)

    return [
        cell(
            "older copy restored",
            "while the archiver is stopped",
            archives.older,
            Sign(Seen.NOTHING, "the archiver is sent what its manifests lack"),
        ),
        cell(
            "older copy restored",
            "under a running archiver",
            archives.older_live,
            Sign(Seen.LOG, "its manifests were set back", "arch"),
            way=("restart the archiver",),
        ),
        cell(
            "wiped",
            "while the archiver is stopped",
            archives.wiped,
            Sign(Seen.COMMAND, "not archived", "wormholectl archive show"),
            way=(
                "stop the archiver, empty its folder",
                "wormholectl markers set archive/db1 earliest --yes",
                "start the archiver",
            ),
        ),
        cell(
            "wiped",
            "under a running archiver",
            archives.wiped_live,
            Sign(Seen.LOG, "is gone", "arch"),
            way=(
                "stop the archiver, empty its folder",
                "wormholectl markers set archive/db1 earliest --yes",
                "start the archiver",
            ),
        ),
        cell(
            "moved",
            "the folder, and `to` with it",
            archives.moved,
            Sign(Seen.NOTHING, "the archiver goes on at the new place"),
        ),
        cell(
            "doubled",
            "a second archiver of the same archive",
            archives.doubled,
            Sign(Seen.ENDED, "cannot be taken", "arch-2"),
            way=("give the second archiver an archive of its own, or stop it",),
        ),
        cell(
            "corrupted",
            "a bit of a data file",
            archives.data_corrupted,
            Sign(Seen.COMMAND, "damaged", "wormholectl archive verify --deep"),
            way=("put the file back from a copy",),
        ),
        cell(
            "corrupted",
            "a bit of the newest manifest",
            archives.manifest_corrupted,
            Sign(Seen.COMMAND, "damaged", "wormholectl archive verify"),
            way=("put the file back from a copy", "restart the archiver"),
        ),
    ]


def _state_folder() -> list[Cell]:
    found = []
    for setting in (_MARIADB, _POSTGRES, _ROCKSDB):
        found += [
            Cell(
                "state folder",
                "older copy restored",
                "the whole `state_dir` as it was one restart earlier",
                setting,
                does.state_older,
                (_REPEATED,),
            ),
            Cell(
                "state folder",
                "wiped",
                "the whole `state_dir` deleted",
                setting,
                does.state_wiped,
                (_NO_MARKER, Sign(Seen.DOCTOR, "held: app/db1")),
                (_ACCEPT,),
            ),
            Cell(
                "state folder",
                "moved",
                "`state_dir` names its new place",
                setting,
                does.state_moved,
                (Sign(Seen.NOTHING, "the flows go on"),),
            ),
            Cell(
                "state folder",
                "doubled",
                "a copy with its lock file, and a second publisher on it",
                setting,
                does.state_doubled,
                (Sign(Seen.LOG, "another publisher", "publisher-2"),),
                ("stop the second publisher",),
                quick=setting is _ROCKSDB,
            ),
            Cell(
                "state folder",
                "corrupted",
                "every JSON file in it overwritten",
                setting,
                does.state_corrupted,
                (Sign(Seen.LOG, "is damaged and is made anew"), *((_DIVERGED,) if setting is _ROCKSDB else ())),
                (_ACCEPT,) if setting is _ROCKSDB else (),
            ),
        ]
    in_zookeeper = (Sign(Seen.NOTHING, "what both hosts need is in ZooKeeper"),)
    return [
        *found,
        Cell(
            "state folder",
            "older copy restored",
            "that of one host, as it was one restart earlier",
            _TWO_HOSTS,
            does.state_older,
            in_zookeeper,
        ),
        Cell("state folder", "wiped", "that of one host deleted", _TWO_HOSTS, does.state_wiped, in_zookeeper),
        Cell(
            "state folder", "corrupted", "every JSON file of one host", _TWO_HOSTS, does.state_corrupted, in_zookeeper
        ),
    ]


def _relay() -> list[Cell]:
    """A flow lacks what the relay has, and PostgreSQL has it no more."""

    def hold(disaster: str, what: str, do: Callable[[Scene], None], *signs: Sign, **more: Any) -> Cell:
        way = (_ACCEPT,) if _PURGED in signs else ()
        return Cell("relay", disaster, what, _HOLD, do, signs, more.pop("way", way), **more)

    def cache(disaster: str, what: str, do: Callable[[Scene], None]) -> Cell:
        return Cell("relay", disaster, what, _CACHE, do, (Sign(Seen.NOTHING, "the flows read the server's log"),))

    halts = Sign(Seen.WHY_LAG, "the application halts at a data loss")
    return [
        hold("older copy restored", "while the publisher is stopped", does.relay_older, _PURGED, halts),
        hold("wiped", "while the publisher is stopped", does.relay_wiped, _PURGED, halts),
        hold("wiped", "under a running publisher", does.relay_wiped_live, _PURGED, halts),
        hold(
            "moved", "the folder, and `relay_folder` with it", does.relay_moved, Sign(Seen.NOTHING, "the flows go on")
        ),
        hold(
            "doubled",
            "a second publisher with the same `relay_folder`",
            does.relay_doubled,
            Sign(Seen.ENDED, "is in use by another process", "publisher-2"),
        ),
        hold("corrupted", "a bit of a file; the publisher is stopped", does.relay_corrupted, _PURGED, halts),
        cache("older copy restored", "while the publisher is stopped", does.relay_older),
        cache("wiped", "while the publisher is stopped", does.relay_wiped),
        cache("wiped", "under a running publisher", does.relay_wiped_live),
        cache("moved", "the folder, and `relay_folder` with it", does.relay_moved),
        cache("corrupted", "a bit of a file; the publisher is stopped", does.relay_corrupted),
    ]


def _host() -> list[Cell]:
    return [
        Cell(
            "host",
            "older copy restored",
            "a snapshot of the publisher's machine: process, `state_dir` and files",
            _FLEET,
            does.state_older,
            (_REPEATED,),
        ),
        Cell(
            "host",
            "wiped",
            "a new machine with the same name and configuration",
            _FLEET,
            does.state_wiped,
            (_NO_MARKER,),
            (_ACCEPT,),
        ),
        Cell(
            "host",
            "moved",
            "the publisher runs on another machine, `state_dir` stayed behind",
            _FLEET,
            does.state_left,
            (_NO_MARKER,),
            (_ACCEPT,),
        ),
        Cell(
            "host",
            "moved",
            "the publisher runs on another machine, `state_dir` stayed behind",
            _ALL_IN_ZOOKEEPER,
            does.state_left,
            (Sign(Seen.NOTHING, "the datamarkers are in ZooKeeper"),),
        ),
        Cell(
            "host",
            "doubled",
            "a clone of the publisher's machine, both run",
            _FLEET,
            does.state_doubled,
            (Sign(Seen.LOG, "is served by another live publisher", "publisher-2"),),
            ("stop the second publisher",),
        ),
        Cell(
            "host",
            "wiped",
            "the one that served is gone, and its `state_dir`",
            _TWO_HOSTS,
            does.host_wiped,
            (Sign(Seen.NOTHING, "the other host takes the log over"),),
        ),
        Cell(
            "host",
            "doubled",
            "a clone of the one that serves, under its name",
            _TWO_HOSTS,
            does.state_doubled,
            (Sign(Seen.LOG, "stands by: main@a", "publisher-2"),),
            ("stop the second publisher",),
        ),
        Cell("host", "corrupted", "a host holds nothing but the folders and stores of the other rows"),
    ]


CELLS: Final = (*_database(), *_marker_store(), *_zookeeper(), *_archive(), *_state_folder(), *_relay(), *_host())
