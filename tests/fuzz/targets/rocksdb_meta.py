"""MANIFEST and OPTIONS files: any bytes give edits or settings, or one DecodeError."""

from __future__ import annotations

import random
import struct
from types import ModuleType

import google_crc32c

from tests.fuzz.target import Target
from wormhole.model.errors import DecodeError

_ADDED = b"\xc8\x01\x07\xc9\x01\x05users\x01\x0acomparator"
_FILE = b"\x67\x00\x0b\xa2\x08\x09a\x01\x00\x00\x00\x00\x00\x00\x00\x09b\x01\x00\x00\x00\x00\x00\x00\x00\x01\x02\x05\x01\x00\x01"  # noqa: E501
_ID = b"\x81\x40\x06the-id"
_OPTIONS = (
    "[Version]\n  rocksdb_version=9.8.4\n",
    "[DBOptions]\n  recycle_log_file_num=2 # two\n  wal_dir=/a\\#b\n",
    '[CFOptions "default"]\n  comparator=leveldb.BytewiseComparator\n',
    '[TableOptions/BlockBasedTable "default"]\n  block_size=4096\n',
)


def _fragment(kind: int, payload: bytes) -> bytes:
    crc = int(google_crc32c.value(bytes([kind]) + payload))
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def _make_edit(rng: random.Random) -> bytes:
    return b"".join(rng.choice((_ADDED, _FILE, _ID)) for _ in range(rng.randrange(1, 4)))


def _decode_edit(module: ModuleType, data: bytes) -> str:
    """Damage below a checksum that is right."""
    return repr(module.ManifestDecoder().feed(_fragment(1, data[:32000])))


def _make_manifest(rng: random.Random) -> bytes:
    data = b""
    for _ in range(rng.randrange(1, 6)):
        edit = _make_edit(rng)
        cut = rng.randrange(len(edit) + 1)
        whole = rng.random() < 0.7
        data += _fragment(1, edit) if whole else _fragment(2, edit[:cut]) + _fragment(4, edit[cut:])
    return data


def _decode_manifest(module: ModuleType, data: bytes) -> str:
    whole = module.ManifestDecoder().feed(data)
    decoder = module.ManifestDecoder()
    pieces = [edit for at in range(0, len(data), 7) for edit in decoder.feed(data[at : at + 7])]
    if repr(pieces) != repr(whole):
        raise AssertionError("the pieces in which it came changed what was read")
    return repr(whole)


def _make_options(rng: random.Random) -> bytes:
    return "".join((_OPTIONS[0], *(rng.choice(_OPTIONS) for _ in range(rng.randrange(5))))).encode()


def _decode_options(module: ModuleType, data: bytes) -> str:
    return repr(module.parse_options(data.decode("utf-8", "backslashreplace")))


TARGETS = [
    Target(
        name="rocksdb-manifest",
        module="datastores.rocksdb.decode.manifest",
        decode=_decode_manifest,
        make=_make_manifest,
        allowed=(DecodeError,),
        observe=lambda value: value,
    ),
    Target(
        name="rocksdb-version-edit",
        module="datastores.rocksdb.decode.manifest",
        decode=_decode_edit,
        make=_make_edit,
        allowed=(DecodeError,),
        observe=lambda value: value,
    ),
    Target(
        name="rocksdb-options",
        module="datastores.rocksdb.decode.options",
        decode=_decode_options,
        make=_make_options,
        allowed=(DecodeError,),
        observe=lambda value: value,
    ),
]
