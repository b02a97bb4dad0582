"""A dump that begins in a folder of binlog files, and goes over to the server behind the last of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from datastores.mysql.files.packets import FilePackets
from datastores.mysql.log.dump import Dump, Start

__all__ = ["FolderDump", "OnServer"]


@dataclass(frozen=True, slots=True)
class OnServer:
    """A dump of the server: over ``connection``, which is taken over."""

    connection: Connection[Any]
    start: Start
    server_id: int


class FolderDump(Dump):
    """``following``: called with the file that was read to its end; returns the next one, or where the server goes on.

    ``over``: called when the stream comes from the server, with `checksums`.
    ``packets`` is ``None`` from then on, and this is a dump like any other.
    """

    def __init__(
        self,
        packets: FilePackets,
        following: Callable[[FilePackets], FilePackets | OnServer],
        over: Callable[[bool], None],
        *,
        mariadb: bool,
    ) -> None:
        self._mariadb = mariadb
        self._following = following
        self._over = over
        self.packets: FilePackets | None = packets
        self._clear()

    def more(self, need: int, wait_s: float) -> bool:
        """See `Dump`; what a file holds is there at once. Raises what reading files raises too."""
        while self.packets is not None:
            parts = [self.data[self.at :]]
            have = len(parts[0])
            want = need or have + 1
            while have < want and (piece := self.packets.read()):
                parts.append(piece)
                have += len(piece)
            self.data, self.at = b"".join(parts), 0
            if have >= want:
                return True
            self.packets.close()
            following = self._following(self.packets)
            if isinstance(following, FilePackets):
                self.packets = following
            else:
                self.packets = None
                self._begin(following.connection, following.start, following.server_id)
                self._over(self.checksums)
        return super().more(need, wait_s)

    def close(self) -> None:
        """See `Dump`."""
        if self.packets is not None:
            self.packets.close()
        else:
            super().close()
