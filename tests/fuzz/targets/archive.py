"""What lies in an archive's folder: a manifest, archive.json, the footer of a data file.

Whatever it is, it is read or told with its name.

Parquet's own part of a file is not mutated: of some damage in it Arrow's library ends the process.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

from spark_replay.archive.checksums import Blocks
from spark_replay.archive.columns import METADATA_KEY, SCHEMA
from spark_replay.archive.footer import Footer, footer_to_bytes
from spark_replay.archive.json_checksum import with_checksum
from spark_replay.archive.layout import About, about_to_json
from spark_replay.archive.manifest import (
    Checkpoint,
    FileEntry,
    KnownLoss,
    Manifest,
    checkpoint_of,
    checkpoint_to_json,
    manifest_to_json,
)
from spark_replay.tables.about import SnapshotAbout, SnapshotShard, SnapshotTable
from spark_replay.tables.about import about_to_json as snapshot_to_json
from spark_replay.tables.newest import LogSchema
from spark_replay.tables.updates import UpdatesFile
from tests.fuzz.mutate_text import mutate_json
from tests.fuzz.target import Target
from tests.support.archives import CUSTOMERS, KEYS, marker_at
from wormhole.model.errors import ArchiveError, ReplayError

_SCHEMAS = {schema.id: schema for schema in (KEYS, CUSTOMERS)}
_ENTRY = FileEntry(
    "x.parquet",
    3,
    900,
    marker_at(0),
    marker_at(3),
    1,
    3,
    {"upsert": 3},
    {"default": 3},
    {f"{KEYS.id:016x}": "default"},
    blocks=Blocks(crcs=bytes(4)),
)
_MANIFEST = Manifest("orders", "a", 3, 1, marker_at(0), marker_at(3), True, copy="main")


def _make_footer(rng: random.Random) -> bytes:
    markers = tuple(marker_at(number) for number in range(1, rng.randrange(2, 6)))
    return footer_to_bytes(Footer("orders", "a", 1, marker_at(0), markers[-1], markers, _SCHEMAS))


def _make_manifest(rng: random.Random) -> bytes:
    entry = _ENTRY
    losses = (KnownLoss(entry.end, "it was gone"),) if rng.random() < 0.5 else ()
    files = (entry,) * rng.randrange(3)
    older = (checkpoint_of("x.json", (entry,), b""),) * (rng.randrange(2) if files else 0)
    manifest = Manifest("orders", "a", 3, 1, entry.begin, entry.end, True, files, losses, "main", older=older)
    return manifest_to_json(manifest)


def _make_checkpoint(rng: random.Random) -> bytes:
    return checkpoint_to_json(_MANIFEST, (replace(_ENTRY, rows=rng.randrange(9)), _ENTRY))


def _checkpoint(module: ModuleType, data: bytes) -> object:
    """Somebody who writes into an archive can name what he wrote."""
    named = Checkpoint("x.json", 2, len(data), zlib.crc32(data), _ENTRY.begin.order, _ENTRY.end.order)
    return module.checkpoint_from_json(data, named, _MANIFEST, "x.json")


def _make_about(rng: random.Random) -> bytes:
    return about_to_json(About("orders", "main", rng.randrange(1 << 32)))


def _make_start(rng: random.Random) -> bytes:
    """What the JSON of a snapshot's folder holds."""
    shards = {"a": SnapshotShard("1/1/0", marker_at(rng.randrange(1, 9)), "db1", "a file is gone")}
    newest = {"db1": LogSchema(CUSTOMERS, bytes(20))}
    tables = {CUSTOMERS.table: SnapshotTable("tables/customers", 3, rng.randrange(2), newest)}
    left_out, others = {"shop.log": "it has no key"}, (KEYS.table,)
    files = (UpdatesFile("updates/x.parquet", 9, Blocks(4, bytes(12))),)
    about = SnapshotAbout("orders", "main", shards, tables, left_out, others, tuple(_SCHEMAS.values()), files)
    return with_checksum({"format": 1, **snapshot_to_json(about, "")})


def _sealed_again(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Somebody who writes into an archive can write the checksum as well."""
    broken = mutate_json(rng, data, other)
    if rng.random() < 0.1:
        return broken
    try:
        given = json.loads(broken)
    except (ValueError, RecursionError):
        return broken
    if not isinstance(given, dict):
        return broken
    return with_checksum({name: value for name, value in given.items() if name != "crc32"}, separators=(",", ":"))


class _Stored:
    """A folder with this one file."""

    def __init__(self, data: bytes) -> None:
        self.read = lambda _name: data


def _start(module: ModuleType, data: bytes) -> object:
    with patch("spark_replay.tables.folder.open_storage", lambda _to: _Stored(data)):
        return module.read_about("/archive", "orders", "main").refusal(lambda table: True)


def _footer(module: ModuleType, data: bytes) -> object:
    parquet = SimpleNamespace(metadata={METADATA_KEY: data}, schema=SimpleNamespace(to_arrow_schema=lambda: SCHEMA))
    return module.read_footer(parquet, "x.parquet")


TARGETS = [
    Target(
        name="archive-manifest",
        module="spark_replay.archive.manifest",
        decode=lambda module, data: module.manifest_from_json(data, "x.json"),
        make=_make_manifest,
        allowed=(ArchiveError,),
        mutate=_sealed_again,
    ),
    Target(
        name="archive-checkpoint",
        module="spark_replay.archive.manifest",
        decode=_checkpoint,
        make=_make_checkpoint,
        allowed=(ArchiveError,),
        mutate=mutate_json,
    ),
    Target(
        name="archive-about",
        module="spark_replay.archive.layout",
        decode=lambda module, data: module.about_from_json(data, "archive.json"),
        make=_make_about,
        allowed=(ArchiveError,),
        mutate=mutate_json,
    ),
    Target(
        name="archive-footer",
        module="spark_replay.archive.footer",
        decode=_footer,
        make=_make_footer,
        allowed=(ArchiveError,),
        mutate=mutate_json,
    ),
    Target(
        name="archive-snapshot",
        module="spark_replay.tables.start",
        decode=_start,
        make=_make_start,
        allowed=(ReplayError,),
        mutate=_sealed_again,
    ),
]
