"""The binlog file that is being read: its number, and the fingerprint that identifies it.

A fingerprint has the time and the server of the file's beginning, from its format description. It also has a checksum
of the GTIDs that were logged before the file, from the list that follows (see `datastores.mysql.history.incarnations`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zlib_ng.zlib_ng import crc32

from datastores.mysql.decode import events
from datastores.mysql.decode.encoder import Encoder
from datastores.mysql.decode.rare_events import Rotate, parse_format_description
from datastores.mysql.files.names import file_number

__all__ = ["BinlogFile"]

_NO_PLACE: Final = bytes(4)


class BinlogFile:
    """The file with the ``number``. ``encoder`` has the offset in it.

    ``described``: its format description was read. ``identified``: its list of GTIDs was read too. The list follows if
    the file is read from its beginning. ``began_s``: when the file was begun. ``check``: called with the number and
    each fingerprint. ``server``: the name of the source of transactions without GTID; empty: every transaction has a
    GTID.
    """

    def __init__(self, encoder: Encoder, number: int, server: str, check: Callable[[int, str], None]) -> None:
        self.number = number
        self.described = self.identified = False
        self.began_s = 0
        self._beginning = ""  # time and server of the file's beginning
        self._encoder = encoder
        self._server = server
        self._check = check
        self._name_anonymous()

    def describe(self, event: bytes) -> None:
        """Read the format description, with header and checksum."""
        description = parse_format_description(event)
        events.check_post_headers(description.header_lengths)
        self._encoder.checksums = description.checksum
        self.described = True
        self.began_s, server = int.from_bytes(event[:4], "little"), int.from_bytes(event[5:9], "little")
        self._beginning = f"{self.began_s}-{server}"
        self._check(self.number, self._beginning)

    def identify(self, event: bytes) -> None:
        """Read the list of the GTIDs logged before the file. A server also sends generated lists that are in no
        file."""
        if self.identified or self._encoder.event_flags & events.ARTIFICIAL or event[13:17] == _NO_PLACE:
            return
        self.identified = True
        self._check(self.number, f"{self._beginning}-{crc32(event[events.HEADER :]):08x}")

    def is_at(self, rotate: Rotate) -> bool:
        """Whether the present place is the one in the event."""
        return file_number(rotate.name) == self.number and rotate.position == self._encoder.file_offset

    def turn(self, rotate: Rotate) -> None:
        """Continue at the place in the event, in its file."""
        self.number = file_number(rotate.name)
        self.described = self.identified = False
        self._encoder.file_offset = rotate.position
        self._name_anonymous()

    def _name_anonymous(self) -> None:
        """Set the source of transactions without GTID. The places of their beginnings give their ids."""
        if self._server:
            self._encoder.anonymous = self._encoder.sources.add(f"{self._server}/{self.number}")
