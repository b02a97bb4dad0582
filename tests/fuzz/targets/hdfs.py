"""Edits of a NameNode: any bytes give updates, or one DecodeError."""

from __future__ import annotations

import random
from types import ModuleType

from tests.fuzz.target import Target
from tests.support.edits import MadeEdits, event
from wormhole.model.errors import DecodeError

_PATHS = ("/", "/a", "/a/b", "/a/täg", "/a/b/c")


def _event(rng: random.Random) -> object:
    path, other = rng.choice(_PATHS), rng.choice(_PATHS)
    return rng.choice(
        (
            event("Create", type=rng.randrange(3), path=path, ctime=1, ownerName="ann", symlinkTarget=other),
            event("Close", path=path, fileSize=rng.randrange(-1, 9), timestamp=2),
            event("Append", path=path),
            event("Rename", srcPath=path, destPath=other, timestamp=3),
            event("MetadataUpdate", path=path, type=rng.randrange(6), acls=[{"name": "bob", "permissions": 5}]),
            event("Unlink", path=path, timestamp=4),
            event("Truncate", path=path, fileSize=1, timestamp=5),
        )
    )


def _make(rng: random.Random) -> bytes:
    made = MadeEdits()
    for _ in range(rng.randrange(1, 6)):
        made.commit(*(_event(rng) for _ in range(rng.randrange(4))))
    return made.answer(1)


def _decode(module: ModuleType, data: bytes) -> object:
    return module.Edits.decode(data)


TARGETS = [
    Target(
        name="hdfs-edits",
        module="datastores.hdfs.decode.events",
        decode=_decode,
        make=_make,
        allowed=(DecodeError,),
    ),
]
