"""One relay file. Its writer and its readers share the object. A later process loads it from the disk."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

from publisher.relay.disk import Disk, DiskFile
from publisher.relay.file_format import (
    BLOCK_SIZE,
    Block,
    Header,
    OtherFileError,
    blocks,
    find_block,
    footer_bytes,
    read_footer,
    read_header,
    record_of,
)
from publisher.relay.settings import RelayIdentity
from wormhole.model.errors import DecodeError
from wormhole.model.position import Datamarker

__all__ = ["OneFile", "load"]

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OneFile:
    """One relay file. Offsets: ``first`` is the begin of the first block, ``readable`` the end of the last whole
    transaction, ``tail`` the place of the next block. ``blocks``: the blocks of whole transactions; ``None``: they are
    in the file's index. ``pieces``: blocks of an unfinished transaction. ``next``: the adjoining file. ``gone``:
    whether the file was removed. ``handle``: the open file while it is being written.
    """

    path: Path
    begin: Datamarker
    end: Datamarker
    first: int
    readable: int
    tail: int
    blocks: list[Block] | None
    log_bytes: int = 0
    synced: Datamarker | None = None
    unsynced: bool = True
    pieces: list[Block] = field(default_factory=list)
    next: OneFile | None = None
    gone: bool = False
    handle: DiskFile | None = None

    @property
    def empty(self) -> bool:
        """Whether the file holds no whole transaction."""
        return self.readable == self.first

    def close(self) -> None:
        """Close the file for writing."""
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()

    def complete(self, *, sync: bool) -> None:
        """Write the index. A file without an index is read block by block at the next start.

        ``sync``: whether the records have to survive a loss of power. Then the whole file is synced before the index is
        written, because the index covers the whole file. Raises ``OSError`` if the sync fails.
        """
        assert self.handle is not None
        assert self.blocks is not None
        if sync:
            self.handle.sync()
        footer = footer_bytes(self.blocks, self.end, self.log_bytes, self.tail)
        try:
            self.handle.write(self.tail, footer)
        except OSError as error:
            _log.warning("%s: its index cannot be written: %s", self.path, error.strerror)
            with contextlib.suppress(OSError):
                self.handle.truncate(self.readable)
            return
        self.tail += len(footer)
        self.unsynced = True
        self.blocks = None


def load(disk: Disk, path: Path, identity: RelayIdentity, *, sync: bool) -> OneFile | None:
    """Load a file of an earlier process, and complete it (:meth:`OneFile.complete`). Returns ``None`` if the file has
    no whole transaction.

    Raises :class:`~wormhole.model.errors.DecodeError` if it is not a relay file, :class:`OtherFileError` and
    ``OSError``.
    """
    with contextlib.closing(disk.open(path, write=True)) as handle:
        header = read_header(handle)
        if what := header.differs_from(identity):
            raise OtherFileError(what)
        size = handle.size()
        footer = read_footer(handle, size)
        if footer is not None:
            at = footer.at
            return OneFile(path, header.begin, footer.end, header.size, at, size, None, footer.log_bytes)
        file = _read_torn(path, header, handle, size)
        if file is not None:
            file.handle = handle
            file.complete(sync=sync)
            file.handle = None
        return file


def _read_torn(path: Path, header: Header, handle: DiskFile, size: int) -> OneFile | None:
    """Load a file without an index, up to its last whole transaction. Later bytes are discarded."""
    found, at = _sound_blocks(header, handle, size)
    if at < size and find_block(handle, at + 1, size):
        lost = size - at
        _log.error("%s is damaged at offset %d: the %d bytes from there on are dropped. Check the disk", path, at, lost)
    marker = None
    while found and (marker := _marker_of(found[-1], handle)) is None:
        found.pop()
    if marker is None:
        return None
    end = found[-1].after
    if end < size:
        _log.info("%s: %d bytes behind the last whole transaction are dropped", path, size - end)
        handle.truncate(end)
    log_bytes = sum(block.log_bytes for block in found)
    return OneFile(path, header.begin, marker, header.size, end, end, found, log_bytes)


def _marker_of(block: Block, handle: DiskFile) -> Datamarker | None:
    """The datamarker at the end of the block, if a transaction ends there."""
    if not block.whole:
        return None
    with contextlib.suppress(DecodeError):
        return record_of(block, handle.read(block.offset + BLOCK_SIZE, block.stored)).segment.marker
    return None


def _sound_blocks(header: Header, handle: DiskFile, size: int) -> tuple[list[Block], int]:
    """The sound, adjoining blocks from the beginning of the file, and the offset at which they end."""
    found: list[Block] = []
    at, end = header.size, header.begin.order
    with contextlib.suppress(DecodeError):
        for block in blocks(handle, at, size):
            if block.begin != end and not block.gap:
                break
            found.append(block)
            at, end = block.after, block.end
    return found, at
