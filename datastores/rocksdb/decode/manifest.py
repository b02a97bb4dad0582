"""Decodes the MANIFEST: a database's column families, and the files that its edits add or delete.

A MANIFEST has the record format of the WAL (32 KiB blocks; see RocksDB's wiki, "Write Ahead Log File Format") without
recycling or compression. Each record is one *version edit*: a sequence of ``tag, value`` (wiki, "MANIFEST"). Unneeded
fields are skipped. This requires knowledge of every older tag, because only tags from 8192 on carry their length.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

import google_crc32c

from datastores.rocksdb.decode.log_format import IGNORABLE
from wormhole.model.errors import DecodeError

__all__ = ["ManifestDecoder", "VersionEdit"]

_BLOCK: Final = 32768
_HEADER: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MASK_DELTA: Final = 0xA282EAD8
_MAX_EDIT: Final = 64 << 20

# The fields after each tag that carries no length. n: a number. s: a string with its length. c and z: pairs (number,
# string) up to the number that ends them. w: the same, with a number for each string. Releases 6.7 to 6.17 wrote four
# tags from 8192 on without a length.
_SKIPPED: Final = {
    3: "n",  # next file number
    5: "ns",  # compaction cursor
    6: "nn",  # deleted file
    7: "nnnss",  # new file, oldest form
    9: "n",  # previous log number
    10: "n",  # least log number to keep
    100: "nnnssnn",  # new file, second form
    102: "nnnnssnn",  # new file, third form
    103: "nnnssnnc",  # new file, fourth form
    203: "n",  # greatest column family number
    300: "n",  # edits that remain in an atomic group
    400: "nnnssz",  # blob file added
    401: "nnnz",  # blob file garbage
    8194: "nnnssz",  # blob file added, before it was 400
    8195: "nnnz",  # blob file garbage, before it was 401
    8196: "nw",  # WAL added, first form
    8197: "n",  # WAL deleted, first form
}
_CUSTOM_END: Final = {"c": 1, "z": 0, "w": 1}
_COMPARATOR, _LOG_NUMBER, _LAST_SEQUENCE = 1, 2, 4
_FAMILY, _FAMILY_ADD, _FAMILY_DROP = 200, 201, 202
_DELETED_FILE: Final = 6
_NEW_FILES: Final = frozenset({7, 100, 102, 103})  # each form begins with level and number
_SAFE_TO_IGNORE: Final = 1 << 13
_DB_ID: Final = _SAFE_TO_IGNORE + 1


@dataclass(slots=True)
class VersionEdit:
    """The parts of a version edit that concern the log.

    ``family``: number of the edit's column family. ``added``: the family's name if this edit creates it. ``dropped``:
    whether this edit drops it. ``comparator``: name of its comparator. ``log_number``: the family's tables hold its
    changes from all WAL files below this number. ``new_files``, ``deleted_files``: numbers of table files; deletions
    are applied first.
    """

    family: int = 0
    added: str | None = None
    dropped: bool = False
    comparator: str | None = None
    log_number: int | None = None
    last_sequence: int | None = None
    db_id: str | None = None
    new_files: list[int] = field(default_factory=list)
    deleted_files: list[int] = field(default_factory=list)


class _Cursor:
    __slots__ = ("at", "data", "where")

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.at = 0
        self.where = where

    def number(self, field: str) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise DecodeError(f"MANIFEST {self.where}: {field} is no number")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF
            shift += 7

    def string(self, field: str) -> bytes:
        length = self.number(field)
        end = self.at + length
        if end > len(self.data):
            raise DecodeError(f"MANIFEST {self.where}: {field} has {length} bytes, {len(self.data) - self.at} are left")
        value = self.data[self.at : end]
        self.at = end
        return value

    def text(self, field: str) -> str:
        # RocksDB's names of column families are bytes. Bytes that are not UTF-8 are escaped.
        return self.string(field).decode("utf-8", "backslashreplace")

    def skip(self, tag: int, form: str) -> list[int]:
        """Skip the fields after the tag. Returns the numbers in them, except those of custom fields."""
        numbers: list[int] = []
        for kind in form:
            if kind == "n":
                numbers.append(self.number(f"tag {tag}"))
            elif kind == "s":
                self.string(f"tag {tag}")
            else:
                while self.number(f"tag {tag}") != _CUSTOM_END[kind]:
                    if kind == "w":
                        self.number(f"tag {tag}")
                    else:
                        self.string(f"tag {tag}")
        return numbers


def _decode_edit(data: bytes, where: str) -> VersionEdit:
    edit = VersionEdit()
    cursor = _Cursor(data, where)
    while cursor.at < len(data):
        tag = cursor.number("tag")
        if tag == _COMPARATOR:
            edit.comparator = cursor.text("comparator")
        elif tag == _LOG_NUMBER:
            edit.log_number = cursor.number("log number")
        elif tag == _LAST_SEQUENCE:
            edit.last_sequence = cursor.number("last sequence")
        elif tag == _FAMILY:
            edit.family = cursor.number("column family")
        elif tag == _FAMILY_ADD:
            edit.added = cursor.text("column family name")
        elif tag == _FAMILY_DROP:
            edit.dropped = True
        elif tag == _DB_ID:
            edit.db_id = cursor.text("database id")
        elif (form := _SKIPPED.get(tag)) is not None:
            numbers = cursor.skip(tag, form)
            if tag in _NEW_FILES:
                edit.new_files.append(numbers[1])
            elif tag == _DELETED_FILE:
                edit.deleted_files.append(numbers[1])
        elif tag & _SAFE_TO_IGNORE:
            cursor.string(f"tag {tag}")
        else:
            raise DecodeError(f"MANIFEST {where}: tag {tag} is unknown and may not be stepped over")
    return edit


class ManifestDecoder:
    """Decodes a MANIFEST while it grows. The caller feeds its bytes in order, in buffers of any size.

    An incomplete record at the end is kept until the rest is fed. After a :class:`DecodeError` the decoder is unusable.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._offset = 0  # offset in the file of the first byte of _data
        self._edit = bytearray()
        self._inside = False

    def feed(self, data: bytes) -> list[VersionEdit]:
        """The edits that are now complete. Raises :class:`DecodeError` with record, field and offset."""
        self._data += data
        edits: list[VersionEdit] = []
        at = 0
        while True:
            room = _BLOCK - (self._offset + at) % _BLOCK
            if room < _HEADER.size:  # the rest of a block, too short for a header
                if len(self._data) - at < room:
                    break
                at += room
                continue
            if len(self._data) - at < _HEADER.size:
                break
            checksum, length, kind = _HEADER.unpack_from(self._data, at)
            if kind == 0 and length == 0:  # space that was allocated and never written
                if len(self._data) - at < room:
                    break
                at += room
                continue
            if length > room - _HEADER.size:
                raise DecodeError(f"MANIFEST record at {self._offset + at}: length {length} passes its block")
            end = at + _HEADER.size + length
            if len(self._data) < end:
                break
            self._take(bytes(self._data[at + 6 : end]), checksum, kind, self._offset + at, edits)
            at = end
        del self._data[:at]
        self._offset += at
        return edits

    def _take(self, kind_and_payload: bytes, checksum: int, kind: int, offset: int, edits: list[VersionEdit]) -> None:
        where = f"record at {offset}"
        crc = int(google_crc32c.value(kind_and_payload))
        if (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF != checksum:
            raise DecodeError(f"MANIFEST {where}: the checksum does not match")
        if kind & IGNORABLE and not self._inside:
            return
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            raise DecodeError(f"MANIFEST {where}: record kind {kind} is unknown")
        if (kind in (_MIDDLE, _LAST)) != self._inside:
            raise DecodeError(f"MANIFEST {where}: a part of a record is where none belongs")
        self._edit += memoryview(kind_and_payload)[1:]
        if len(self._edit) > _MAX_EDIT:
            raise DecodeError(f"MANIFEST {where}: the edit is over {_MAX_EDIT} bytes")
        self._inside = kind in (_FIRST, _MIDDLE)
        if not self._inside:
            edit, self._edit = bytes(self._edit), bytearray()
            edits.append(_decode_edit(edit, where))
