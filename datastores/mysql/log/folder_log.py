"""The part of a log that only a folder of binlog files has, and dumps that go over from there to the server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.files.gtids import covers, is_in, together
from datastores.mysql.files.names import file_number
from datastores.mysql.files.packets import FilePackets, FolderFile
from datastores.mysql.log.dump import Dump, FromFile, FromGtids, Start
from datastores.mysql.log.folder import BinlogFolder
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.model.errors import DecodeError, SourceUnavailable

__all__ = ["FolderDump", "FolderLog", "OnServer", "unproven"]

_FILE_BEGIN: Final = 4
_OPENED_AGAIN: Final = "it is opened again, which shows whether something is missing"


class FolderLog:
    """Reads the files of ``folder``, which a view lists in front of the server's own."""

    def __init__(self, folder: BinlogFolder, queries: StateQueries) -> None:
        self._folder = folder
        self._queries = queries

    def packets(self, connection: Connection[Any], view: ServerState, start: Start) -> FilePackets | None:
        """What a walk from ``start`` on begins with; ``None``: the server has it."""
        if isinstance(start, FromFile):
            kept = view.kept_file(file_number(start.name))
            return None if kept is None else self._open(kept, start.offset)
        if not view.kept:
            return None
        mariadb = self._queries.mariadb
        own = self._queries.listed_before(connection, view, view.own_first)
        if own is not None and covers(start.text, own, mariadb=mariadb):
            return None
        # All that lies before the newest of these was delivered; what else was is left out.
        for kept in reversed(view.kept):
            if covers(start.text, kept.gtids or "", mariadb=mariadb):
                return self._open(kept, _FILE_BEGIN, start.text)
        return None

    def following(
        self, connection: Connection[Any], view: ServerState, packets: FilePackets, left_out: str, *, inside: bool
    ) -> FilePackets | Start:
        """What follows a file that was read to its end: the next one, or what the server's dump begins with.

        ``left_out``: what is not delivered again, as GTIDs; ``inside``: the file ends inside a transaction.
        Raises :class:`SourceUnavailable` where log is missing between the two. The file is not used any more then.
        """
        file = packets.file
        number = file.number + 1
        if view.size(number) is None:
            raise SourceUnavailable(
                f"neither the server nor the folder has {view.name(number)} now, which follows {file.path}",
                hint=_OPENED_AGAIN,
            )
        listed = self._queries.listed_before(connection, view, number)
        if why := unproven(packets, listed, inside=inside):
            self._folder.refuse(file, why)
            raise SourceUnavailable(f"{file.path}: {why}", hint=_OPENED_AGAIN)
        kept = view.kept_file(number)
        if kept is not None:
            return self._open(kept, _FILE_BEGIN, left_out, checksums=packets.checksums)
        if left_out:
            return FromGtids(together(left_out, listed or "", mariadb=self._queries.mariadb))
        return FromFile(view.name(number), _FILE_BEGIN)

    def leads(self, connection: Connection[Any], view: ServerState, number: int) -> bool:
        """Whether the files from that one on go over into the server's first one, and their GTIDs show it.

        Reads them. Raises :class:`SourceUnavailable`."""
        listed: str | None = None
        while (kept := view.kept_file(number)) is not None:
            number += 1
            listed = self._queries.listed_before(connection, view, number)
            if self.why_not(kept, listed):
                return False
        return bool(listed)

    def why_not(self, kept: FolderFile, listed: str | None) -> str:
        """Why a file, which is read, does not go over into the one with this list; empty: it does."""
        packets = self._open(kept, sys.maxsize)
        try:
            with closing(packets):
                while packets.read():
                    pass
        except DecodeError as error:
            return str(error)
        return unproven(packets, listed, inside=not packets.ended)

    def _open(self, kept: FolderFile, offset: int, left_out: str = "", *, checksums: bool = False) -> FilePackets:
        mariadb = self._queries.mariadb
        skip = is_in(left_out, mariadb=mariadb) if left_out else None
        return FilePackets(kept, offset, mariadb=mariadb, checksums=checksums, skip=skip)


def unproven(packets: FilePackets, following: str | None, *, inside: bool) -> str:
    """Why a file that was read to its end may lack transactions before the next one begins, whose list of GTIDs is
    ``following``; empty: it lacks none, and the next one continues it.

    ``inside``: it ends inside a transaction, which then does not count: a server that is killed leaves such a file.
    """
    logged, last = packets.logged, packets.last
    if last is not None and not inside:
        logged.add(last)
    if packets.closed and following is None:
        return ""
    traceless = packets.anonymous or (last is None and not packets.mariadb)
    if not packets.closed and (following is None or traceless):
        return "it is not closed: it ends without naming the next file, and no GTIDs show that it is whole"
    why = logged.differs(following or "")
    if why and not packets.closed:
        return f"it is not closed, and is cut or still being written: {why}"
    return f"the file behind it does not continue it: {why}" if why else ""


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
