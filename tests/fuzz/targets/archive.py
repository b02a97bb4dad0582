"""What lies in an archive's folder: a manifest, archive.json, the footer of a data file. Whatever it is, it is read or told with its name.

Parquet's own part of a file is not mutated: of some damage in it Arrow's library ends the process.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType, SimpleNamespace

from spark_replay.archive.columns import METADATA_KEY, SCHEMA
from spark_replay.archive.footer import Footer, footer_to_bytes
from spark_replay.archive.layout import About, about_to_json
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest, manifest_to_json
from tests.fuzz.target import Target
from tests.support.archives import CUSTOMERS, KEYS, marker_at
from wormhole.errors import ArchiveError

__all__ = ["TARGETS"]

_ENDS = (b"Infinity", b"-1", b"null", b"[]", b"{}", b'"x"', b"1.5", b"true", b"9" * 30, b'"\\ud800"', b'"../x"')
_VALUE = re.compile(rb'(?<=[:\[, ])(-?\d+|"[^"]*"|true|false)')


_SCHEMAS = {schema.id: schema for schema in (KEYS, CUSTOMERS)}
_ENTRY = FileEntry(
    "x.parquet", 3, 900, marker_at(0), marker_at(3), 1, 3, {"upsert": 3}, {"default": 3}, {f"{KEYS.id:016x}": "default"}
)


def _make_footer(rng: random.Random) -> bytes:
    markers = tuple(marker_at(number) for number in range(1, rng.randrange(2, 6)))
    return footer_to_bytes(Footer("orders", "a", 1, marker_at(0), markers[-1], markers, _SCHEMAS))


def _make_manifest(rng: random.Random) -> bytes:
    entry = _ENTRY
    losses = (KnownLoss(entry.end, "it was gone"),) if rng.random() < 0.5 else ()
    files = (entry,) * rng.randrange(3)
    return manifest_to_json(Manifest("orders", "a", 3, 1, entry.begin, entry.end, True, files, losses, "main"))


def _make_about(rng: random.Random) -> bytes:
    return about_to_json(About("orders", "main", rng.randrange(1 << 32)))


def _decode_json(decode: Callable[[bytes], object], data: bytes) -> object:
    """The input, and before it some that have a value in it that JSON can say, and that cannot be there."""
    rng = random.Random(data)
    if found := list(_VALUE.finditer(data)):
        for _ in range(4):
            at = rng.choice(found)
            with suppress(ArchiveError):
                decode(data[: at.start()] + rng.choice(_ENDS) + data[at.end() :])
    return decode(data)


def _footer(module: ModuleType, data: bytes) -> object:
    parquet = SimpleNamespace(metadata={METADATA_KEY: data}, schema=SimpleNamespace(to_arrow_schema=lambda: SCHEMA))
    return module.read_footer(parquet, "x.parquet")


TARGETS = [
    Target(
        name="archive-manifest",
        module="spark_replay.archive.manifest",
        decode=lambda module, data: _decode_json(lambda one: module.manifest_from_json(one, "x.json"), data),
        make=_make_manifest,
        allowed=(ArchiveError,),
    ),
    Target(
        name="archive-about",
        module="spark_replay.archive.layout",
        decode=lambda module, data: _decode_json(lambda one: module.about_from_json(one, "archive.json"), data),
        make=_make_about,
        allowed=(ArchiveError,),
    ),
    Target(
        name="archive-footer",
        module="spark_replay.archive.footer",
        decode=lambda module, data: _decode_json(lambda one: _footer(module, one), data),
        make=_make_footer,
        allowed=(ArchiveError,),
    ),
]
