"""Every form that is stored or travels: a fixed value of each, how it is written, and how it is read.

``python -m tests.compatibility.stored_forms FOLDER`` writes all of them with the code of the checkout that it runs in
(fixtures/README.md). A form without a fixture is written there by the present code, and then never again.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import shutil
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow.fs import LocalFileSystem

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import BackfillRequest, FlowBackfill
from datastores.common.high_water import HighWater
from datastores.mysql.history.incarnations import Incarnations as MysqlIncarnations
from datastores.mysql.history.incarnations import Lost
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.state import ServerState as MysqlState
from datastores.postgres.history.incarnations import History
from datastores.postgres.history.incarnations import Incarnations as PostgresIncarnations
from datastores.postgres.server.state import ServerState as PostgresState
from datastores.postgres.tables.publication import Publication
from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.continuity import Evidence
from datastores.rocksdb.history.time_index import TimeIndex
from datastores.rocksdb.history.wal_files import WalHistory
from datastores.rocksdb.source import RocksSource
from monitor.last_good_config import LastGoodConfig
from publisher.flows.known_flows import KnownFlows
from publisher.relay.disk import DISK
from publisher.relay.file_format import (
    BLOCK_SIZE,
    block_at,
    footer_bytes,
    header_bytes,
    read_footer,
    read_header,
    record_bytes,
    record_of,
)
from publisher.relay.lost_key_files import LostKeyFiles
from publisher.relay.record import Border, Record
from publisher.relay.settings import RelayIdentity
from publisher.stores.dead_letters.rules import letter_from_json, letter_to_json
from publisher.stores.dead_letters.zookeeper import _parcel_from_bytes, _parcel_to_bytes
from publisher.stores.markers import LocalMarkerStore
from publisher.stores.markers.rules import flow_from_json, flow_to_json
from publisher.stores.source_state import _packed, _unpacked
from publisher.stores.table_boundaries import TableBoundaries
from spark_replay.archive.checksums import Blocks
from spark_replay.archive.footer import read_footer as read_parquet_footer
from spark_replay.archive.layout import About, about_from_json, about_to_json, garbage_path
from spark_replay.archive.manifest import (
    Checkpoint,
    FileEntry,
    KnownLoss,
    Manifest,
    checkpoint_from_json,
    checkpoint_of,
    checkpoint_to_json,
    manifest_from_json,
    manifest_to_json,
)
from spark_replay.archive.newest_snapshot import NewestSnapshot, note_snapshot, noted_snapshot
from spark_replay.archive.retention import GRACE_S, expire
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.baseline.work import BaselinePlan, Done, KeyRange
from spark_replay.export.leftovers import ExportRun, noted
from spark_replay.export.state import Exported, ExportedShard, state_from_text, state_to_text
from spark_replay.tables.about import ABOUT, SnapshotAbout, SnapshotShard, SnapshotTable
from spark_replay.tables.about import about_from_json as snapshot_from_json
from spark_replay.tables.about import about_to_json as snapshot_to_json
from spark_replay.tables.columns import TableColumn
from spark_replay.tables.folder import Folder
from spark_replay.tables.newest import LogSchema
from spark_replay.tables.updates import UpdatesFile
from subscriber_sdk.arrow import BatchInfo, RecordBatches
from subscriber_sdk.options.admission import Admission
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import Abilities
from subscriber_sdk.stream.session import Session
from tests.support.archives import CUSTOMERS, Change, gone, put, row, segments, tx, write_archive
from tests.support.clocks import ScriptedClock
from wormhole.audit.delivery_counts import DeliveryCounts, RangeKind, moved_page
from wormhole.audit.window_counts import Mismatch, ProcessedCount, WindowCounts
from wormhole.config import CoordinatorConfig, application_from_json, config_to_json, dataset_from_json, parse, to_json
from wormhole.config.load import parse_json
from wormhole.coordination import records
from wormhole.coordination.access import Access, digest_id
from wormhole.coordination.host_files import HostFiles
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import (
    CandidateInfo,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    LogGroup,
    MonitorInfo,
    MoveRequest,
    PublisherInfo,
    SubscriberInfo,
    Term,
)
from wormhole.coordination.records import Paths, TermRecord
from wormhole.coordination.up_data_folder import embedded_coordinator, write_embedded
from wormhole.filters import Filter
from wormhole.host.ready_file import ReadyFile, read_ready, write_ready
from wormhole.host.state_file import FolderState
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LastAck, LogPosition
from wormhole.model.problem import Problem
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange, Segment
from wormhole.model.sharding import Sharding
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.model.values import Op
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import DeadLetter, Parcel, UpdatePlace
from wormhole.ports.marker_store import (
    BackfillControl,
    FlowControl,
    MarkerWrite,
    ReplayControl,
    ReplayState,
    StoredFlow,
)
from wormhole.push.session import PushSession
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes
from wormhole.wire.tally import Tally
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2

NOW_S: Final = 1_700_000_000
FILTER: Final = "0123456789abcdef"
FLOW: Final = ("cache", "db1")
GROUP: Final = LogGroup("shop", "@failover", "db1")
FIRST, SECOND = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "b9f1a7f2-71ca-11e1-9e33-c80aa9429563"
STORE: Final = Path(__file__).with_name("fixtures") / "rocksdb/store"
LEAST_GZIPPED: Final = 1 << 16


@dataclass(frozen=True)
class Form:
    """``write``: its files into an empty folder. ``read``: what its files in a folder hold. ``value``: that of the
    fixture. ``content``: what has to be the same of a file's bytes, where those also depend on a library.
    """

    name: str
    value: Any
    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    content: Callable[[bytes], object] = bytes

    def __str__(self) -> str:
        return self.name


def in_bytes(
    name: str,
    value: Any,
    to_bytes: Callable[[Any], bytes],
    from_bytes: Callable[[bytes], Any],
    content: Callable[[bytes], object] = bytes,
) -> Form:
    """A form of one file, or node, with the bytes of a value."""

    def write(folder: Path) -> None:
        (folder / Path(name).name).write_bytes(to_bytes(value))

    return Form(name, value, write, lambda folder: from_bytes((folder / Path(name).name).read_bytes()), content)


def files_of(folder: Path) -> dict[str, bytes]:
    """By path within the folder; large sparse ones are kept compressed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name, data = str(path.relative_to(folder)), path.read_bytes()
            found[name.removesuffix(".gz")] = gzip.decompress(data) if name.endswith(".gz") else data
    return found


def unpack(fixture: Path, folder: Path) -> Path:
    """A copy of a fixture as its form wrote it."""
    for name, data in files_of(fixture).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def keep(form: Form, root: Path) -> None:
    """Write the fixture of a form below ``root``."""
    folder = root / form.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    form.write(folder)
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size >= LEAST_GZIPPED:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()


def at(offset: int, file: int = 7, incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, file, offset)
    anchor = Anchor(f"source:{offset}", 0xDEADBEEF, LogPosition(incarnation, file, 0))
    return Datamarker(place, f"gtid:1-{offset}", LogPosition(incarnation, file, 4), anchor, NOW_S * 1_000_000, b"\1\2")


# --- coordination


PUBLISHER: Final = PublisherInfo("shop", "main", "db1", "host1", 42, "127.0.0.1:7000", NOW_S + 0.5, "dev:8:1:ino:77")
SETTINGS: Final = """
version = 1
[coordinator]
zookeeper = "zoo.invalid:2181/wormhole"
[datasets.shop]
shard_by = { hash = 3 }
caravans = { max = 3, max_read_rate = "8MiB/s", max_total_read_rate = "20MiB/s" }
existing_rows = { rate = "1MiB/s", memory = "16MiB" }
value_format = "json"
values = { users = "msgpack", orders = { protobuf = { descriptor_set = "/orders.desc", message = "shop.Order" } } }
[datasets.shop.archive]
application = "keep"
to = "/archive/shop"
flush_every = "30s"
flush_size = "32MiB"
keep = "30d"
compact = "auto"
[datasets.shop.copies.main.logs.db1]
host = "host1"
source = "rocksdb:///data/db1"
pin_folder = "/pins"
pin_budget = "2GiB"
[datasets.bank.failover]
copies = ["main", "spare"]
patience = "45s"
[datasets.bank.copies.main.logs.db2]
hosts = ["host2", "host3"]
source = "mysql://wormhole@db2.invalid:3306/"
password_file = "/secret"
server_ids = "900-907"
skip_tables = ["shop.noise"]
history_tables = ["shop.old"]
relay = "cache"
relay_folder = "/relay"
relay_budget = "2GiB"
relay_compression = "none"
[datasets.bank.copies.spare.logs.db2]
host = "host4"
source = "main"
kind = "mysql"
[applications.cache]
dataset = "shop"
start = "latest"
copy = "main"
tables = ["users", "orders"]
where = 'op != "delete" and after.city in ("Łódź", "Oslo")'
columns = ["users.city"]
mask = { "users.name" = "null" }
retry = { attempts = 5, first_wait = "1s", longest_wait = "10s" }
on_failure = "park"
on_bad_value = "halt"
allow = ["a", "b"]
[applications.keep]
dataset = "shop"
copy = "main"
start = "earliest"
"""


OF_A_HOST: Final = """
version = 1
insecure = true
[tls]
cert = "/tls/cert.pem"
key = "/tls/key.pem"
ca = "/tls/ca.pem"
crl = "/tls/crl.pem"
[coordinator]
zookeeper = "127.0.0.1:2181/wormhole"
session_timeout = "7s"
connect_timeout = "8s"
auth_file = "/auth"
same_user = true
zookeeper_jars = "/jars"
tls = { cert = "/zk/cert.pem", key = "/zk/key.pem", ca = "/zk/ca.pem" }
[publisher]
memory_budget = "300MiB"
change_buffer = "70MiB"
max_update_bytes = "32MiB"
max_frame = "2MiB"
markers = "zookeeper"
state_dir = "/state"
admin_listen = "127.0.0.1:7001"
http_listen = "127.0.0.1:7002"
admins = ["eve"]
descriptor_sets = ["/sets"]
mask_key_file = "/mask.key"
dead_letters = 500
grace_period = "6s"
handler_timeout = "50s"
heartbeat = "2s"
stop_timeout = "21s"
[monitor]
host = "host1"
state_dir = "/monitor"
listen = "127.0.0.1:7481"
stop_timeout = "31s"
restart = { first_wait = "1s", longest_wait = "20s", crashes = 4, within = "50s" }
[sources.one]
source = "postgres://wormhole@db1.invalid:5432/shop"
password_file = "/secret"
relay = "hold"
relay_folder = "/relay"
relay_budget = "2GiB"
relay_compression = "none"
slot_budget = "1GiB"
on_relay_full = "keep_slot"
[sources.two]
source = "mysql://wormhole@db2.invalid:3306/"
binlog_folder = "/binlogs"
[sources.three]
source = "rocksdb:///data/db3"
pin_folder = "/pins"
pin_budget = "2GiB"
[datasets.bank.copies.main.logs.db4]
host = "host4"
source = "postgres://wormhole@db4.invalid:5432/bank"
relay = "hold"
slot_budget = "1GiB"
on_relay_full = "keep_slot"
[datasets.cash.copies.main.logs.db5]
host = "host5"
source = "mysql://wormhole@db5.invalid:3306/"
binlog_folder = "/binlogs"
[datasets.shop.copies.main.logs.db1]
host = "host1"
source = "one"
[applications.cache]
dataset = "shop"
start = "latest"
pin = { db1 = "a" }
"""
LISTED: Final = """
version = 1
[coordinator]
static = true
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///data/db1"
[applications.cache]
dataset = "shop"
start = "latest"
[applications.cache.subscribers]
a = "127.0.0.1:7001"
"""
REQUESTED: Final = HostRequest(True, "eve@host1", NOW_S + 2.5)
CHANGED: Final = HistoryEntry(NOW_S + 1.5, "eve@host1", "flows pause", "cache/db1", "live", "paused: ü")


def parsed(text: str = SETTINGS) -> Any:
    return parse(text, "fleet.toml", folder=Path("/"))


def coordination() -> Iterator[Form]:
    subscriber = SubscriberInfo("cache", "a", "127.0.0.1:7001", 2.5, NOW_S + 0.5, 1000)
    candidate = CandidateInfo(
        "spare",
        "host2",
        43,
        "127.0.0.1:7002",
        NOW_S + 0.5,
        1,
        "uuid",
        "gtid:1-3",
        False,
        "lags",
        "wait",
        NOW_S + 1.5,
        True,
    )
    term = Term(4, "main", "host1", 42, "uuid", NOW_S + 0.5, "its session ended")
    monitor = MonitorInfo("host1", 41, "http://127.0.0.1:7480/", NOW_S + 0.5, {"shop/main/db1": "running"})
    move = MoveRequest("spare@host2", "eve@host1", NOW_S + 0.5)
    flow = FlowRecord("shop/main/db1@host1:42", "a", 3, "live")

    def node(name: str, value: Any, write: Callable[[Any], bytes], read: Callable[..., Any], *path: Any) -> Form:
        return in_bytes(f"zookeeper/{name}", value, write, lambda data: read(*path, data, "a node"))

    yield node("subscriber", subscriber, records.subscriber_to_json, records.subscriber_from_json, "cache", "a")
    silent = replace(subscriber, user=None)
    yield node("subscriber-least", silent, records.subscriber_to_json, records.subscriber_from_json, "cache", "a")
    place = ("shop", "main", "db1")
    bare = replace(PUBLISHER, owner="")
    yield node("publisher-least", bare, records.publisher_to_json, records.publisher_from_json, *place)
    yield node("publisher", PUBLISHER, records.publisher_to_json, records.publisher_from_json, *place)
    yield node("owner", PUBLISHER, records.owner_to_json, records.owner_from_json, GROUP)
    yield node("candidate", candidate, records.candidate_to_json, records.candidate_from_json, "spare@host2")
    yield node("term", TermRecord(4, "c-7", (term,)), records.term_to_json, records.term_from_json)
    yield node("move", move, records.move_to_json, records.move_from_json)
    yield node("flow", flow, records.flow_to_json, records.flow_from_json)
    yield node("host", REQUESTED, records.host_to_json, records.host_from_json)
    yield node("history", CHANGED, records.history_to_json, records.history_from_json)
    yield node("monitor", monitor, records.monitor_to_json, records.monitor_from_json, "host1")
    operator, publisher, of_cache = map(digest_id, ("operator:one", "publisher:two", "subscriber-cache:three"))
    access = Access(operator, publisher, {"cache": of_cache}, True)
    yield node("access", access, Access.to_json, Access.from_json)
    yield in_bytes("zookeeper/paths", all_paths(), lambda paths: json.dumps(paths).encode(), json.loads)

    def settings(kind: str, one: Any, read: Callable[..., Any]) -> Form:
        return in_bytes(
            f"zookeeper/{kind}-{one.name}",
            one,
            lambda one: to_json(one).encode(),
            lambda data: read(one.name, data.decode(), "a node"),
        )

    config = parsed()
    yield from (settings("dataset", one, dataset_from_json) for one in config.datasets.values())
    yield settings("application", config.applications["cache"], application_from_json)
    yield in_bytes(
        "zookeeper/source-state",
        {"incarnations": [{"number": 1}]},
        lambda content: _packed("a node", content),
        _unpacked,
        zlib.decompress,
    )


def all_paths() -> list[str]:
    paths = Paths("/root")
    of_application = (paths.subscriber, paths.flow, paths.marker, paths.delivery_counts)
    of_group = (paths.owner, paths.claims, paths.term, paths.candidates, paths.move)
    return [
        *paths.top,
        *(paths.access, paths.config, paths.history, paths.hosts),
        *(one("name") for one in (paths.host, paths.monitor, paths.application, paths.dataset)),
        *(one("cache", "db1") for one in of_application),
        paths.publisher("shop", "main", "db1"),
        *(one(GROUP) for one in of_group),
        *(one(GROUP, "name") for one in (paths.claim, paths.candidate, paths.log_state)),
    ]


# --- marker stores


REPLAY: Final = ReplayControl(
    "r-1",
    "eve@host1",
    "latest",
    NOW_S + 0.5,
    60.0,
    "5e" * 32,
    ReplayState.REPLAYING,
    at(20),
    at(80),
    'op == "delete"',
    b"\0\1",
    2,
    "a",
    "task 1 of job 9",
    at(15),
)
BACKFILL: Final = BackfillControl(
    3,
    "eve@host1",
    NOW_S + 0.5,
    ("shop.users",),
    'after.city == "Oslo"',
    FILTER,
    1024.0,
    "eve@host1",
    "cancelled",
    next(mode for mode in VerifyMode if mode is not VerifyMode.NONE),
    12,
    ((LogPosition(1, 7, 4), LogPosition(1, 7, 90)),),
)
CONTROL: Final = FlowControl(
    "eve@host1", ("source:7:0",), REPLAY, Problem("it is missing", "look for it", "marker-missing"), BACKFILL
)
STORED: Final = StoredFlow(at(90), 3, "earliest", FILTER, CONTROL, True)
LEAST: Final = StoredFlow(
    Datamarker(LogPosition(1, 7, 4), "", LogPosition(1, 7, 4)),
    0,
    "latest",
    control=FlowControl(
        replay=ReplayControl("r-1", "eve@host1", "log", NOW_S + 0.5, 60.0, "5e" * 32),
        backfill=BackfillControl(1, "start", NOW_S + 0.5),
    ),
)
"""What may be left out is: records are compared as text."""
LETTER: Final = DeadLetter(
    "test:13:4",
    UpdatePlace(LogPosition(1, 1, 13), True, "test:13", 4),
    (b"\x0a\x02\x08\x03", b"\x0a\x02\x08\x04"),
    "insert",
    NOW_S + 0.5,
    "ValueError('ü')",
    True,
    123,
)
PARCEL: Final = Parcel(CUSTOMERS.canonical, b"body")


WINDOW: Final = NOW_S // 600
PLACES: Final = [LogPosition(1, 7, offset) for offset in (0, 10, 20, 30)]


def pages() -> dict[str, bytes]:
    """Delivery counts."""
    counts = DeliveryCounts({})
    counts.acknowledged(FILTER, PLACES[0], PLACES[2], {WINDOW: Tally(7, 11), 0: Tally(1, 5)}, NOW_S)
    counts.reported(FILTER, 77, {WINDOW: ProcessedCount(6, 1, 9, 2)}, NOW_S)
    counts.reported(FILTER, 78, {WINDOW: ProcessedCount(2, 0, 0, 0)}, NOW_S, partial=True)
    counts.mismatch(FILTER, WINDOW, Mismatch(PLACES[0], PLACES[1], 5, 4, 1, PLACES[0]), NOW_S)
    counts.partially_delivered(FILTER, PLACES[2], PLACES[3])
    counts.redelivered(FILTER, PLACES[0], PLACES[1])
    return {**counts.changed(NOW_S), **moved_page(4)}


COUNTED: Final = (
    {
        (FILTER, 0): WindowCounts(Tally(1, 5)),
        (FILTER, WINDOW): WindowCounts(
            delivered=Tally(7, 11),
            processed=6,
            set_aside=1,
            aside_hash=9,
            delays=[7, *[0] * 10],
            mismatches=[Mismatch(PLACES[0], PLACES[1], 5, 4, 1, PLACES[1])],
            lives={77: ProcessedCount(6, 1, 9, 2), 78: ProcessedCount(2, 0, 0, 0)},
            partial=2,
        ),
    },
    {
        RangeKind.COUNTED: {FILTER: [(PLACES[0], PLACES[2])]},
        RangeKind.PARTIAL: {FILTER: [(PLACES[2], PLACES[3])]},
        RangeKind.REDELIVERED: {FILTER: [(PLACES[0], PLACES[1])]},
    },
    4,
)


def fill(folder: Path, other: StoredFlow) -> None:
    """A marker store with everything that a record can hold, as the statements that write it."""
    store = LocalMarkerStore(folder)
    store.open()
    store.register_all({FLOW: StoredFlow(at(5), 3, "earliest"), ("cache", "db2"): other})
    assert store.store([MarkerWrite(FLOW, 3, at(90), FILTER, pages())]) == ()
    store.dead_letters().park(FLOW, 3, LETTER, PARCEL)
    store.close()
    with sqlite3.connect(folder / "markers.sqlite") as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        lines = [*database.iterdump(), f"PRAGMA user_version = {version};"]
    database.close()
    for path in folder.iterdir():
        path.unlink()
    (folder / "markers.sql").write_text("\n".join(lines))


def filled(folder: Path) -> Any:
    with sqlite3.connect(folder / "markers.sqlite") as database:
        database.executescript((folder / "markers.sql").read_text())
    database.close()
    store = LocalMarkerStore(folder)
    store.open()
    try:
        counts = DeliveryCounts(store.delivery_counts([FLOW])[FLOW])
        counted = counts.windows, counts.ranges, counts.moved_in
        letters = store.dead_letters()
        return store.load(), counted, letters.load(FLOW), letters.read(FLOW, LETTER.id)
    finally:
        store.close()


def marker_stores() -> Iterator[Form]:
    yield in_bytes("markers/zookeeper", STORED, flow_to_json, lambda data: flow_from_json(FLOW, data, "a node"))
    yield in_bytes("markers/zookeeper-least", LEAST, flow_to_json, lambda data: flow_from_json(FLOW, data, "a node"))
    yield in_bytes(
        "markers/dead-letter",
        LETTER,
        lambda letter: letter_to_json(letter).encode(),
        lambda data: letter_from_json(FLOW, data, "a node"),
    )
    yield in_bytes("markers/parcel", PARCEL, _parcel_to_bytes, _parcel_from_bytes)
    counts = replace(COUNTED[0][FILTER, WINDOW], unacknowledged=3, moved_past=2)
    yield in_bytes("markers/window-counts", counts, WindowCounts.to_bytes, WindowCounts.from_bytes)
    yield sqlite_form("markers/sqlite", STORED)
    yield in_bytes("markers/datamarker", at(33), marker_to_bytes, marker_from_bytes)
    yield progress()


def sqlite_form(name: str, other: StoredFlow, last_ack: LastAck | None = None) -> Form:
    """A marker store with two flows, one of them ``other``. ``last_ack``: what is stored of the other's, by a release
    that does."""
    flows = {FLOW: StoredFlow(at(90), 3, "earliest", FILTER, last_ack=last_ack), ("cache", "db2"): other}
    return Form(name, (flows, COUNTED, (LETTER,), PARCEL), lambda folder: fill(folder, other), filled)


def progress() -> Form:
    """How far a backfill came, in a datamarker."""
    request = BackfillRequest(3)
    lists = [
        ("shop.users", Boundaries(7, "users/1", {1000: b"k1", 2000: b"k2"})),
        ("shop.orders", Boundaries(8, "o", {})),
    ]

    def chunk(table: str, begin: int, end: int, again: tuple[bytes, ...] = ()) -> ChunkRange:
        return ChunkRange(table, CUSTOMERS, None, None, begin, end, LogPosition(1, 7, 4), left_out=again, again=again)

    def write() -> bytes:
        flow = FlowBackfill(request, FILTER)
        flow.offer(lists)
        flow.took(chunk("shop.orders", START, END), 5)
        flow.took(chunk("shop.users", START, 1000, (b"k0",)), 3)
        return flow.to_bytes()

    def read(data: bytes) -> Any:
        flow = FlowBackfill.resume(request, data, FILTER)
        flow.offer(lists)
        return flow.rows, list(flow.tables), list(flow.ranges("shop.users")), list(flow.again("shop.users")), flow.begun

    value = (8, ["shop.users"], [(1000, END)], [b"k0"], True)
    return in_bytes("markers/backfill", value, lambda _: write(), read)


# --- the relay


IDENTITY: Final = RelayIdentity("db1", "mysql", "hash=3", 1 << 20, "skip=shop.noise", 1)
CHANGES: Final = [tx(put(b"k1", b"v1"), put(b"k2", b"v2")), tx(gone(b"k1"))]


def relay_record() -> Record:
    first, second = segments("a", CHANGES)
    segment = Segment(
        first.begin,
        first.end,
        first.runs,
        first.marker,
        900,
        NOW_S,
        LogGap(LossKind.PURGED, "1/1/0", "1/1/7", "it is gone", "1/1/8"),
        replaced={"shop.users": LogPosition(1, 1, 50)},
    )
    return Record(segment, (Border(second.end, at(3).anchor), Border(second.end, None)))


def write_relay(folder: Path) -> None:
    data = header_bytes(IDENTITY, at(0))
    block, stored = record_bytes(relay_record(), len(data), None)
    data += stored
    (folder / "whole").write_bytes(data + footer_bytes([block], at(200), 900, len(data)))
    packed, stored = record_bytes(relay_record(), 0, zstandard.ZstdCompressor(1))
    assert packed.stored < packed.size
    (folder / "packed").write_bytes(stored)
    LostKeyFiles(folder, IDENTITY).note(segments("a", CHANGES), LogPosition(1, 1, 0), LogPosition(1, 1, 200))


def read_relay(folder: Path) -> Any:
    file = DISK.open(folder / "whole")
    try:
        header, footer = read_header(file), read_footer(file, file.size())
        record = record_in(file.read(header.size, file.size()))
    finally:
        file.close()
    lost = LostKeyFiles(folder, IDENTITY).keys("a", LogPosition(1, 1, 100), LogPosition(1, 1, 200))
    assert footer is not None
    assert lost is not None
    records = record, record_in((folder / "packed").read_bytes())
    changed = {table: sorted(found.keys) for table, found in lost.tables.items()}
    return header.begin, header.differs_from(IDENTITY), records, footer.end, footer.log_bytes, changed


def record_in(data: bytes) -> Record:
    block = block_at(0, data[:BLOCK_SIZE], len(data))
    return record_of(block, data[BLOCK_SIZE : block.after])


def relay_content(data: bytes) -> object:
    """Records may be compressed, and the keys of lost files are, behind the identity and two places."""
    if data.startswith(b"WHrB"):
        return record_in(data)
    begin = 2 + 16 + 2 * LogPosition.SIZE
    return (data[:begin], zlib.decompress(data[begin:-4])) if data.startswith(b"\x01\x10") else data


def relay() -> Iterator[Form]:
    changed = {"default": [b"\x12\x04\n\x02k1", b"\x12\x04\n\x02k2"]}
    value = (at(0), "", (relay_record(), relay_record()), at(200), 900, changed)
    yield Form("relay", value, write_relay, read_relay, relay_content)


# --- state folders of sources


def water(path: Path, *markers: Datamarker) -> HighWater:
    found = HighWater(path)
    for marker in markers:
        found.rise(marker)
    return found


def write_mysql(folder: Path) -> None:
    high = HighWater(folder / "read.bin")
    known = MysqlIncarnations(FolderState(folder), high)

    def server(identity: str, file: int, offset: int) -> MysqlState:
        return MysqlState(identity, 1, "binlog", ((3, 900), (file, offset)), (file, offset), "", state=f"0-1-{offset}")

    known.observe(server(FIRST, 4, 700))
    known.check_file(1, 4, "1700000001-1-aaaa")
    high.rise(at(700, 4))
    known.observe(server(SECOND, 5, 100))
    high.rise(at(100, 5, 2))
    known.observe(server(SECOND, 5, 95), lost=Lost("it lost the end", unproven=True, shared=LogPosition(2, 5, 90)))
    known.check_file(3, 5, "1700000002-2-cccc")
    high.rise(at(95, 5, 3))
    high.rise(at(96, 5, 3))
    catalog = Catalog(folder / "tables.jsonl")
    catalog.present([("shop", "users", True), ("shop", "noise", False), ("shop", "Straße", None)], folds=True)
    catalog.note("bank", "accounts", keyed=True)
    catalog.save()


def read_mysql(folder: Path) -> Any:
    high = HighWater(folder / "read.bin")
    known = MysqlIncarnations(FolderState(folder), high)
    first, second = known.known(FIRST), known.known(SECOND)
    assert first is not None
    assert second is not None
    catalog = Catalog(folder / "tables.jsonl")
    keys = {table: catalog.keys(*table) for table in catalog.all()}
    states = known.begun_with(1), known.unproven, known.reached
    return str(high.last), states, first.files, second.files, known.read_since(1), keys


def write_postgres(folder: Path) -> None:
    state = FolderState(folder)
    high = HighWater(folder / "read.bin")
    known, publication = PostgresIncarnations(state, high), Publication(state)
    for oid, timeline, end in ((16400, 1, 500), (16400, 1, 600), (16500, 2, 700)):
        server = PostgresState("7300000000000000001", timeline, end, end, 150000, "logical", 0, 0.0, True)
        server = replace(server, publication_oid=oid)
        known.observe(server, lost="its end is gone" if timeline == 2 else "")
        publication.observe(server)
        if timeline == 1:
            high.rise(at(end, 0))
    (folder / "read.bin").unlink()


def read_postgres(folder: Path) -> Any:
    state = FolderState(folder)
    known, publication = PostgresIncarnations(state), Publication(state)
    return known.ended_since(1), known.current, publication.since, publication.until


def write_rocksdb(folder: Path) -> None:
    store, state = folder / "store", folder / "state"
    shutil.copytree(STORE, store)
    source = RocksSource(
        store, log="db1", state_dir=state, sharding=Sharding("log"), max_update_bytes=1 << 20, disk_budget=1 << 30
    )
    source.start()
    source.stop()
    for name in ("histories.json", "1/families.json"):
        (state / "rocksdb" / name).rename(folder / Path(name).name)
    shutil.rmtree(store)
    shutil.rmtree(state)
    history = WalHistory(1, folder / "wal", 1 << 30, lambda number, written_us: None)
    history.about = {"identity": FIRST, "reason": "first seen", "source_id": FIRST[:8]}
    history.reached = (10, 16)
    history.note(EVIDENCE)
    (folder / "wal").rmdir()
    times = TimeIndex(folder / "times", lambda number: (900, 0), lambda: NOW_S * 1_000_000)
    times.committed_at(LogPosition(1, 10, 50), live=True)
    times.file_appeared(1, 11, 0)
    times.close()


def read_rocksdb(folder: Path) -> Any:
    (identity,) = FolderState(folder).read("histories").values()
    families = FamilyCatalogue(folder / "nowhere", folder / "families.json")
    history = WalHistory(1, folder / "wal", 1 << 30, lambda number, written_us: None)
    times = TimeIndex(folder / "times", lambda number: (900, 0), lambda: 0)
    try:
        until = times.until((NOW_S + 60) * 1_000_000)
        given = [times.committed_at(LogPosition(1, file, 50), live=False) for file in (10, 11)]
        return identity, families.names(), history.about, history.reached, history.evidence, given, until
    finally:
        times.close()


EVIDENCE: Final = Evidence(5, 13, (10019115, 1795372069247218298, 1795372069247218299), (12, 1142))
ROCKSDB: Final = "2630b5dc-d899-4bfe-bc91-6d8c28da7645"


def write_publisher(folder: Path) -> None:
    async def note() -> None:
        coordinator = MemoryCoordinator()
        await coordinator.start()
        await KnownFlows(coordinator, folder / "flows.json").note({FLOW: FlowRecord("owner", "a", 3, "live")})

    asyncio.run(note())
    clock = ScriptedClock(NOW_S)
    lists = TableBoundaries(folder, clock=clock.clock)
    lists.next_scan()
    boundaries = Boundaries(7, "users/1", {1000: b"k1"})
    lists.replace("shop.users", boundaries)
    lists.add("shop.users", boundaries, 2000, b"k2")
    write_ready(folder / "publisher.json", READY)


def read_publisher(folder: Path) -> Any:
    async def epoch() -> int | None:
        coordinator = MemoryCoordinator()
        await coordinator.start()
        return await KnownFlows(coordinator, folder / "flows.json").epoch_after(FLOW)

    lists = TableBoundaries(folder)
    users = lists.load("shop.users")
    assert users is not None
    with mock.patch("wormhole.host.ready_file.process_started", return_value=READY.started):
        ready = read_ready(folder / "publisher.json")
    return asyncio.run(epoch()), lists.next_scan(), (users.id, users.fingerprint, dict(users.keys)), ready


READY: Final = ReadyFile(42, 9, "127.0.0.1:7000", "127.0.0.1:7001", "0.1.0", FILTER)


def state_folders() -> Iterator[Form]:
    yield Form(
        "state/mysql",
        (
            "3/5/96 (gtid:1-96)",
            ("0-1-700", True, LogPosition(3, 5, 0)),
            {4: "1700000001-1-aaaa"},
            {5: "1700000002-2-cccc"},
            [(1, "gtid:1-700"), (2, "gtid:1-100")],
            {
                ("shop", "users"): (True, False),
                ("shop", "noise"): (False, True),
                ("shop", "Straße"): (True, False),
                ("bank", "accounts"): (True, False),
            },
        ),
        write_mysql,
        read_mysql,
    )
    system = "7300000000000000001"
    ended = History(1, system, 1, "", "gtid:1-600", True)
    why = "the server is on timeline 2, it was on 1: a failover, or a recovery"
    yield Form("state/postgres", ([ended], History(2, system, 2, why), 700, 600), write_postgres, read_postgres)
    first = {"identity": ROCKSDB, "reason": "first seen", "source_id": ROCKSDB[:8]}
    about = {"identity": FIRST, "reason": "first seen", "source_id": FIRST[:8]}
    at_us = NOW_S * 1_000_000
    yield Form(
        "state/rocksdb",
        (first, {0: "default", 1: "users"}, about, (10, 16), EVIDENCE, [at_us, at_us], (LogPosition(1, 11, 1), 0)),
        write_rocksdb,
        read_rocksdb,
    )
    users = (7, "users/1", {1000: b"k1", 2000: b"k2"})
    yield Form("state/publisher", (103, NOW_S + 2, users, READY), write_publisher, read_publisher)


# --- files of a host


def write_host(folder: Path) -> None:
    files = HostFiles(folder)
    files.set_request("host1", REQUESTED)
    files.record(CHANGED)
    for lock in folder.glob("*.lock"):
        lock.unlink()
    LastGoodConfig(parsed().datasets, True, NOW_S + 0.25).store(folder / "last-good.json")
    write_embedded(folder, EMBEDDED, Path("/up/state"))
    (folder / "config.json").write_text(config_to_json(parsed()))


def read_host(folder: Path) -> Any:
    files = HostFiles(folder)
    config = parse_json((folder / "config.json").read_text(), "config.json", folder=Path("/"))
    (folder / ".wormhole").mkdir()
    (folder / ".wormhole/shop").symlink_to(folder)
    embedded = embedded_coordinator(folder / "shop.toml")
    return files.request("host1"), files.history(9), LastGoodConfig.load(folder / "last-good.json"), config, embedded


EMBEDDED: Final = CoordinatorConfig(zookeeper="127.0.0.1:2181/wormhole", session_timeout=7.0)


def host() -> Iterator[Form]:
    good = LastGoodConfig(parsed().datasets, True, NOW_S + 0.25)
    for name, text in (("settings", OF_A_HOST), ("settings-listed", LISTED)):
        yield in_bytes(
            f"running/{name}",
            parsed(text),
            lambda config: config_to_json(config).encode(),
            lambda data: parse_json(data.decode(), "it", folder=Path("/")),
        )
    yield Form("host", (REQUESTED, (CHANGED,), good, parsed(), EMBEDDED), write_host, read_host)


# --- the archive, and what is made of it


ENTRY: Final = FileEntry(
    "000001-000001.parquet",
    3,
    1 << 20,
    at(0),
    at(200),
    NOW_S * 1_000_000,
    NOW_S * 1_000_000 + 1,
    {"insert": 3},
    {"shop.customers": 3},
    {f"{CUSTOMERS.id:016x}": "shop.customers"},
    1,
    2,
    1,
    77,
    88,
    2,
    99,
    Blocks(1 << 19, b"\1\2\3\4\5\6\7\x08"),
)
OLDER: Final = replace(ENTRY, name="000001-000000.parquet", merged=3)
MANIFEST: Final = Manifest(
    "orders", "db1", 5, 2, at(0), at(200), True, (ENTRY,), (KnownLoss(at(100), "it is gone"),), "main", "db1"
)
SNAPSHOT: Final = SnapshotAbout(
    "orders",
    "main",
    {"db1": SnapshotShard("1/1/0", at(200), "db1", "the log was purged")},
    {"shop.customers": SnapshotTable("tables/shop.customers", 3, 1, {"db1": LogSchema(CUSTOMERS, b"\0\1")})},
    {"shop.odd": "it has no key"},
    ("shop.other",),
    (CUSTOMERS,),
    (UpdatesFile("updates/one.parquet", 1 << 20, Blocks(1 << 19, b"\1\2\3\4\5\6\7\x08")),),
)
PLAN: Final = BaselinePlan(
    "orders",
    "main",
    7,
    ("shop.customers",),
    {"db1": at(200)},
    {"db1": {"shop.customers": "f"}},
    {"shop.odd": "it has no key"},
    ("shop.other",),
    (KeyRange(0, 1, "db1", "shop.customers", b"a", b"b", (b"k",), 9),),
)
DONE: Final = Done(
    3,
    LogPosition(1, 7, 4),
    "16/B374D848",
    UpdatesFile("baseline/rows/one.parquet", 1 << 20, Blocks(1 << 19, b"\1\2\3\4\5\6\7\x08")),
    {LogPosition(1, 7, 4): 9},
    ("db1",),
    (CUSTOMERS,),
)
EXPORTED: Final = Exported(
    "orders",
    "main",
    "shop.customers",
    {"db1": ExportedShard(at(200), "db1", "000001-000001.parquet")},
    (Column("id", "int"),),
    (TableColumn("id", "id_", "int"),),
    "5e5e",
    NOW_S * 1_000_000,
)
NOTED: Final = NewestSnapshot("/snapshots/one", "2023-11-14T22:13:20+00:00", {"db1": LogPosition(1, 7, 4)})
ADA, MOVED = (1, "Ada", "Łódź", 7), (1, "Ada", "Oslo", 7)
ROWS: Final = {"db1": [[tx(row(Op.INSERT, ADA)), tx(row(Op.UPDATE, MOVED, ADA))]]}


def checkpoint() -> Checkpoint:
    return checkpoint_of("one.json", [OLDER], checkpoint_to_json(MANIFEST, [OLDER]))


def write_data(folder: Path) -> None:
    write_archive(folder / "archive", ROWS)
    (folder / "archive/db1/data/000001-000001.parquet").rename(folder / "data.parquet")
    shutil.rmtree(folder / "archive")


def read_data(folder: Path) -> Any:
    footer = read_parquet_footer(pq.read_metadata(folder / "data.parquet"), "data.parquet")
    rows = pq.read_table(folder / "data.parquet").to_pylist()
    return (footer.dataset, footer.shard, footer.epoch, footer.schemas), [(one["op"], one["update"]) for one in rows]


def table_of(data: bytes) -> object:
    table = pq.read_table(pa.BufferReader(data))
    return table.to_pylist(), table.schema.metadata, table.schema.names, list(map(str, table.schema.types))


def write_snapshot(folder: Path) -> None:
    Folder(str(folder), ABOUT).finish(snapshot_to_json(SNAPSHOT, NOTED.created))


def read_note(folder: Path) -> Any:
    return noted_snapshot(open_store(str(folder), "orders", copy="main"))


def write_note(folder: Path) -> None:
    store = open_store(str(folder), "orders", copy="main", create=True)
    note_snapshot(store, NOTED, {})
    (folder / "archive.json").write_bytes(about_to_json(About("orders", "main", NOW_S)))


def stray(folder: Path) -> ArchiveStore:
    """An archive with a file that no manifest names."""
    store = write_archive(folder / "archive", ROWS)
    file = folder / "archive/db1/data/stray.parquet"
    file.write_bytes(b"")
    os.utime(file, (NOW_S, NOW_S))
    return store


def write_garbage(folder: Path) -> None:
    expire(stray(folder), None, NOW_S)
    (folder / "archive" / garbage_path("db1")).rename(folder / "garbage.json")
    shutil.rmtree(folder / "archive")


def read_garbage(folder: Path) -> Any:
    store = stray(folder)
    shutil.copy(folder / "garbage.json", folder / "archive" / garbage_path("db1"))
    (shard,) = expire(store, None, NOW_S + GRACE_S)
    return [one.name for one in shard.deleted]


def write_run(folder: Path) -> None:
    run = ExportRun(cast(Any, SimpleNamespace(filesystem=LocalFileSystem(), root=str(folder), data="")), "7")
    run.name = EXPORTED.run
    run.begin()


def exported(state: Exported) -> bytes:
    with mock.patch("spark_replay.export.state._release", return_value="0.1.0"):
        return state_to_text(state).encode()


def archives() -> Iterator[Form]:
    yield in_bytes(
        "archive/about", About("orders", "main", NOW_S), about_to_json, lambda data: about_from_json(data, "it")
    )
    named = replace(MANIFEST, older=(checkpoint(),))
    yield in_bytes("archive/manifest", named, manifest_to_json, lambda data: manifest_from_json(data, "it"))
    yield in_bytes(
        "archive/checkpoint",
        (OLDER,),
        lambda files: checkpoint_to_json(MANIFEST, files),
        lambda data: checkpoint_from_json(data, checkpoint(), MANIFEST, "it"),
    )
    updates = [(one.op.value, one.encoded()) for group in ROWS["db1"] for of in group for one in of.changes]
    footer = ("orders", "db1", 1, {CUSTOMERS.id: CUSTOMERS})
    yield Form("archive/data", (footer, updates), write_data, read_data, table_of)
    yield Form("archive/newest-snapshot", NOTED, write_note, read_note)
    yield Form("archive/garbage", ["stray.parquet"], write_garbage, read_garbage)
    yield Form(
        "tables/snapshot",
        SNAPSHOT,
        write_snapshot,
        lambda folder: snapshot_from_json(Folder(str(folder), ABOUT).about(), "it"),
    )
    yield in_bytes("tables/baseline-plan", PLAN, BaselinePlan.to_json, lambda data: BaselinePlan.from_json(data, "it"))
    least = replace(PLAN, ranges=(KeyRange(0, 0, "db1", "shop.customers"),))
    yield in_bytes(
        "tables/baseline-plan-least", least, BaselinePlan.to_json, lambda data: BaselinePlan.from_json(data, "it")
    )
    yield in_bytes("tables/baseline-done", DONE, Done.to_json, lambda data: Done.from_json(data, "it"))
    runs = {EXPORTED.run: "7"}
    yield Form("tables/export-run", runs, write_run, lambda folder: noted(LocalFileSystem(), str(folder)))
    yield in_bytes("tables/export-commit", EXPORTED, exported, lambda data: state_from_text(data.decode(), "it"))


# --- what travels, beside the fields of protobuf messages, which proto/fields.txt remembers


VALUES: Final = Schema(
    "shop.values",
    (Column("id", "int"),),
    tuple(Column(kind, kind) for kind in ("bytes", "text", "int", "uint", "double", "bool", "decimal", "entries")),
)
AFTER: Final = (b"\0\1", "Łódź", -5, 1 << 63, 0.5, True, Decimal("1.50"), {b"k": b"v"})
BATCH: Final = BatchInfo("shop.values", "a", 3, 7, False, ("id",))
COLUMNS: Final = (
    ColumnDefinition("id", Content.INTEGER, nullable=False),
    ColumnDefinition("kind", Content.ENUM, nullable=True, members=("a", "b")),
)


def body() -> bytes:
    changes = [Change(Op.INSERT, (1,), AFTER, schema=VALUES), Change(Op.DELETE, (1,), (), AFTER, schema=VALUES)]
    (segment,) = segments("a", [tx(*changes)])
    built = build_body(segment.runs["a"], segment.end.incarnation)
    assert built is not None
    return built.data


def updates_in(data: bytes) -> list[Update]:
    return list(Batch(parse_body(data), "a", 3, False, {VALUES.id: VALUES}.__getitem__, 7).updates())


def metadata() -> bytes:
    _, made = RecordBatches(before=False).take(updates_in(body()), 0)
    return bytes(made.schema.metadata[b"wormhole"])


def batch_info(data: bytes) -> BatchInfo:
    return BatchInfo.of(pa.RecordBatch.from_arrays([], schema=pa.schema([], metadata={b"wormhole": data})))


HELLO: Final = push_pb2.Hello(
    min_version=1,
    max_version=3,
    publisher="shop/main/db1@host1:42",
    dataset="shop",
    copy="main",
    log="db1",
    application="cache",
    subscriber="a",
    heartbeat_ms=3000,
    max_frame_bytes=1 << 20,
    owner="dev:8:1:ino:77",
)


class Stream:
    """Both ends of one. ``recorded``: the messages that each of them gets in place of what the other one sends."""

    def __init__(self, recorded: dict[str, list[str]] | None = None) -> None:
        self.publisher = PushSession(HELLO)
        self.subscriber = Session(
            Admission("cache", "a"),
            max_frame_bytes=1 << 20,
            max_body_bytes=1 << 20,
            now=0.0,
            abilities=Abilities(verifies=True, takes_ranges=True),
        )
        self.sent: dict[str, list[str]] = {"publisher": [], "subscriber": []}
        self.events: list[Any] = []
        self._recorded = self.sent if recorded is None else recorded

    def push(self, *frames: bytes | None) -> None:
        data = self._got("publisher", b"".join(filter(None, frames)))
        self.events += self.subscriber.receive(data, 0.0)

    def answer(self) -> None:
        data = self._got("subscriber", self.subscriber.take_output(0.0) or b"")
        self.events += [event for event in self.publisher.receive(data) if event is not None]

    def _got(self, side: str, data: bytes) -> bytes:
        self.sent[side].append(base64.b64encode(data).decode())
        return base64.b64decode(self._recorded[side][len(self.sent[side]) - 1])


def talk(stream: Stream, move: int = 0, last_ack: LastAck | None = None) -> Stream:
    """Every frame once. ``move`` and ``last_ack``: of the flow that is assigned; 0 and ``None``: later fields that were
    not sent then."""
    publisher, subscriber = stream.publisher, stream.subscriber
    stream.push(publisher.start())
    stream.answer()
    flow, assign = publisher.assign(
        "cache",
        "db1",
        5,
        at(0),
        at(50).order,
        0.0,
        skip=("source:7:0",),
        park=True,
        parked=PARKED,
        rolled_back="source:8",
        rewound=True,
        yields=True,
        generation=2,
        verify=VerifyMode.COMPARE,
        move=move,
        acknowledged=bool(move),
        last_ack=last_ack,
    )
    stream.push(assign)
    subscriber.accept(flow.number, 1 << 20, at(0), move=move)
    stream.answer()
    (batch,) = publisher.batch(flow, (body(),), at(0).order)
    chunk = ChunkRange("shop.values", VALUES, None, b"\x0a\x02\x08\x03", 0, 9, at(0).order)
    ends = [*publisher.chunk_end(flow, chunk, narrowed=False, rows=2), publisher.scan_end(flow, "shop.values", 2, 2)]
    stream.push(*publisher.schemas([VALUES]), b"".join(batch), *ends, publisher.datamarker(flow, at(100), 0.0))
    stream.push(publisher.notice(flow, begins=True), publisher.notice(flow, begins=False), publisher.heartbeat())
    subscriber.progress(flow.number, 1)
    subscriber.park(flow.number, LETTER.id, Parcel(VALUES.canonical, body()), LETTER.place, LETTER.error)
    subscriber.report(flow.number, push_pb2.HandlerReport(updates=2, busy_s=0.5, slowest_table="shop.values"))
    subscriber.verified(flow.number, push_pb2.Verified(table="shop.values", compared=2, ended=True))
    subscriber.ack(flow.number, at(100))
    stream.answer()
    gap = LogGap(LossKind.PURGED, "1/1/0", "1/1/7", "it is gone")
    stream.push(publisher.parked(flow, LETTER.id, "there is no room"), publisher.data_loss(flow, gap, at(200)))
    subscriber.decide_loss(flow.number, proceed=True)
    stream.answer()
    other, assign = publisher.assign("cache", "db2", 6, at(0), None, 0.0)
    stream.push(publisher.revoke(flow, "moved"), assign)
    subscriber.release(flow.number, at(100))
    subscriber.fail(other.number, push_pb2.Failed.HANDLER, "source:9:0", "ValueError('ü')")
    stream.answer()
    subscriber.goodbye(push_pb2.Goodbye.LEAVING, "it ends", "wait")
    stream.push(publisher.goodbye(push_pb2.Goodbye.LEAVING, "it ends"))
    return stream


def write_stream(folder: Path, move: int = 0, last_ack: LastAck | None = None) -> None:
    (folder / "messages.json").write_text(json.dumps(talk(Stream(), move, last_ack).sent, indent=1))


def read_stream(folder: Path, move: int = 0, last_ack: LastAck | None = None) -> Any:
    events = talk(Stream(json.loads((folder / "messages.json").read_text())), move, last_ack).events
    return [type(event).__name__ for event in events], events[2], events[4].body, events[7].marker


EVENTS: Final = (
    "PublisherWelcomed Welcomed Assigned Opened BatchArrived RangeArrived ScanEnded MarkerArrived NoticeArrived "
    "NoticeArrived ParkWanted Reported Verified Acked Progressed ParkAnswered LossArrived LossDecided Revoked "
    "Assigned Released FlowFailed"
)
"""What a stream with every frame brings to either side."""
PARKED: Final = ((LETTER.rows[0], LETTER.place),)
ASSIGNED: Final = Assigned(
    1,
    5,
    "db1",
    at(0),
    replayed=True,
    skip=("source:7:0",),
    park=True,
    parked=PARKED,
    rolled_back="source:8",
    rewound=True,
    yields=True,
    generation=2,
    verify=VerifyMode.COMPARE,
)


def moved_stream(name: str, last_ack: LastAck | None = None) -> Form:
    """A stream of a flow whose datamarker was moved."""
    assigned = replace(ASSIGNED, move=4, acknowledged=True, last_ack=last_ack)
    value = (EVENTS.split(), assigned, body(), at(100))
    return Form(
        name, value, partial(write_stream, move=4, last_ack=last_ack), partial(read_stream, move=4, last_ack=last_ack)
    )


def travelling() -> Iterator[Form]:
    values = dict(zip(VALUES.names, AFTER, strict=True))
    updates = [("source-a:1:0", Op.INSERT, (1,), values, None), ("source-a:1:1", Op.DELETE, (1,), None, values)]
    yield in_bytes(
        "wire/batch",
        updates,
        lambda _: body(),
        lambda data: [(one.id, one.op, one.key, one.after, one.before) for one in updates_in(data)],
    )
    yield in_bytes("wire/schema", VALUES, lambda schema: bytes(schema.canonical), Schema.from_canonical)
    yield Form("wire/stream", (EVENTS.split(), ASSIGNED, body(), at(100)), write_stream, read_stream)
    yield in_bytes("wire/arrow", BATCH, lambda _: metadata(), batch_info)
    names = [
        Filter.parse('op != "delete" and after.city in ("Łódź", "Oslo")', ["users"]).hash,
        TableDefinition("shop.users", ("id",), COLUMNS).fingerprint,
        f"{VALUES.id:016x}",
    ]
    yield in_bytes("wire/names", names, lambda found: json.dumps(found).encode(), json.loads)


def all_forms() -> list[Form]:
    return [*coordination(), *marker_stores(), *relay(), *state_folders(), *host(), *archives(), *travelling()]


if __name__ == "__main__":
    for one in all_forms():
        keep(one, Path(sys.argv[1]))
