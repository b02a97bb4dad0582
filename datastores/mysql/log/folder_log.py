"""Reads the part of a log that only a folder of binlog files has, with dumps that then continue on the server."""

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
    """Reads the files of ``folder``, which a view lists before the server's own files."""

    def __init__(self, folder: BinlogFolder, queries: StateQueries) -> None:
        self._folder = folder
        self._queries = queries

    def packets(self, connection: Connection[Any], view: ServerState, start: Start) -> FilePackets | None:
        """The packets with which a walk from ``start`` begins; ``None``: the server has the log from ``start`` on."""
        if isinstance(start, FromFile):
            kept = view.kept_file(file_number(start.name))
            return None if kept is None else self._open(kept, start.offset)
        if not view.kept:
            return None
        mariadb = self._queries.mariadb
        own = self._queries.listed_before(connection, view, view.own_first)
        if own is not None and covers(start.text, own, mariadb=mariadb):
            return None
        # All log before the newest file that `start` covers was delivered. Later delivered transactions are left out.
        for kept in reversed(view.kept):
            if covers(start.text, kept.gtids or "", mariadb=mariadb):
                return self._open(kept, _FILE_BEGIN, start.text)
        return None

    def following(
        self, connection: Connection[Any], view: ServerState, packets: FilePackets, left_out: str, *, inside: bool
    ) -> FilePackets | Start:
        """The continuation after a file that was read to its end: the next file, or the start of the server's dump.

        ``left_out``: GTIDs that are not delivered again. ``inside``: the file ends within a transaction. Raises
        :class:`SourceUnavailable` if log is missing between the two; then the file is not used any more.
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
        """Whether the files from ``number`` on continue up to the server's first file, as their GTIDs prove.

        Reads the files. Raises :class:`SourceUnavailable`."""
        listed: str | None = None
        while (kept := view.kept_file(number)) is not None:
            number += 1
            listed = self._queries.listed_before(connection, view, number)
            if self.why_not(kept, listed):
                return False
        return bool(listed)

    def why_not(self, kept: FolderFile, listed: str | None) -> str:
        """Why a file is not continued by the file that begins with the list ``listed``; empty: it is. Reads the
        file."""
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
    """Why a file that was read to its end may lack transactions before the next file; empty: it lacks none.

    ``following``: the list of GTIDs at the beginning of the next file. ``inside``: the file ends within a transaction,
    as a killed server leaves it. That transaction is then ignored.
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
    """A dump on the server, which then owns ``connection``."""

    connection: Connection[Any]
    start: Start
    server_id: int


class FolderDump(Dump):
    """A dump of a folder's files that continues on the server. ``following``: called with a file that was read to its
    end; returns the next file, or the server's dump that continues it.

    ``over``: called with `checksums` when the stream changes to the server. From then on ``packets`` is ``None``, and
    this is an ordinary dump.
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
        """See `Dump`. The packets of a file need no waiting. Also raises errors of reading files."""
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
