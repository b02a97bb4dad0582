"""RocksDB's log format and write batches: any bytes give records and rows, or a named fault."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

from tests.fuzz.target import Target
from tests.support.rocksdb_wal import WalWriter, batch, delete, put, string, varint
from wormhole.model.errors import DecodeError
from wormhole.wire.rows import decode_row


class _RefusedError(Exception):
    """The decoder said what is wrong."""


def _entries(rng: random.Random) -> list[bytes]:
    def text() -> bytes:
        return string(rng.randbytes(rng.choice((0, 1, 8, 60, 130))))

    wide = varint(1) + varint(1) + string(b"n") + varint(3) + b"abc"
    makers = (
        lambda: put(rng.randbytes(8), rng.randbytes(rng.choice((0, 5, 127, 128, 300)))),
        lambda: put(rng.randbytes(3), b"v", rng.randrange(4)),
        lambda: delete(rng.randbytes(8)),
        lambda: bytes([rng.choice((0x02, 0x0F, 0x11))]) + text() + text(),
        lambda: b"\x16" + text() + string(wide),
        lambda: b"\x18" + text() + string(bytes(9)),
    )
    return [rng.choice(makers)() for _ in range(rng.randrange(1, 6))]


def _make_batch(rng: random.Random) -> bytes:
    return batch(rng.randrange(1 << 40), _entries(rng))


def _decode_batch(module: ModuleType, data: bytes) -> object:
    encoder = module.Encoder(200)
    for family in range(8):
        encoder.add_family(family, 0, 0, 0)
    if encoder.record(data, 0, len(data), 1) != module.Status.OK:
        raise _RefusedError
    piece = encoder.take()
    return piece.blob, piece.ends.tolist()


def _observe_batch(value: Any) -> object:
    blob, ends = value
    begin = 0
    for end in ends:
        update = blob[begin:end]
        skip = 1 + next(i for i in range(1, 6) if update[i] < 0x80)
        decode_row(update[skip:])
        begin = end
    return value


def _make_log(rng: random.Random) -> bytes:
    writer = WalWriter(rng.choice((None, 5)))
    for _ in range(rng.randrange(1, 5)):
        writer.add(rng.randbytes(rng.choice((1, 30, 200, 32_700, 40_000))))
    return bytes(writer.data)


def _decode_log(module: ModuleType, data: bytes) -> object:
    frames = module.Frames(64)
    at, status = module.frame(data, 0, 0, 5, frames, False, False)
    if status not in {module.MORE, module.META}:
        raise _RefusedError
    return at, status, frames.fault_at, frames.starts[: frames.count].tolist(), frames.kinds[: frames.count].tolist()


TARGETS = [
    Target(
        "rocksdb.write_batch",
        "datastores.rocksdb.decode.write_batch",
        _decode_batch,
        _make_batch,
        (DecodeError, _RefusedError),
        _observe_batch,
    ),
    Target(
        "rocksdb.log_format",
        "datastores.rocksdb.decode.log_format",
        _decode_log,
        _make_log,
        (_RefusedError,),
        lambda value: value,
    ),
]
