"""Whether a server's log is still the one that was read. Checked after every interruption of the connection.

MariaDB's servers have no identity of their own, and a copy of a MySQL server keeps its uuid and gives the same GTIDs
again: a server that was restored from an older backup, and wrote and purged until its numbers were past those that were
seen, looks like one that only purged. What distinguishes them are the files: the newest one that was seen and is still
there must be the same. Its numbers being without holes, that proves the history up to it. Where none is left, nothing
can prove it. A connection that never broke proves it too: a server is not restored while it serves one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datastores.mysql.history.confirmation import Believe
from datastores.mysql.history.incarnations import Incarnations, Known, Lost, same_file
from datastores.mysql.server.state import ServerState
from wormhole.model.position import LogPosition

__all__ = ["Read", "lost_history"]


@dataclass(frozen=True, slots=True)
class Read:
    """The log was read up to ``order``; ``lacking``: what of that the server has not executed, as GTIDs."""

    order: LogPosition
    lacking: str


def lost_history(
    incarnations: Incarnations,
    view: ServerState,
    fingerprint: Callable[[int], str],
    believe: Believe,
    read: Read | None = None,
    leads: Callable[[int], bool] = lambda _: False,
) -> Lost | None:
    """Why the server's log is not the one that was seen of it, or cannot be shown to be. ``None``: it is, or is new.

    ``fingerprint`` reads that of a file. ``believe``: called with what speaks against it; raises when that has to be
    confirmed first. ``read``: how far the present log was read. ``leads``: whether a file of the folder goes over
    into the server's first one.
    """
    known = incarnations.known(view.identity)
    if known is None:
        return None
    lost = _lost_files(known, view, fingerprint, leads) or (_lost_end(view, read) if read and known.current else None)
    if lost is not None:
        believe(lost.why)
    return lost


def _lost_files(
    known: Known, view: ServerState, fingerprint: Callable[[int], str], leads: Callable[[int], bool]
) -> Lost | None:
    if not known.files:
        return None
    left = [number for number in known.files if view.own_size(number) is not None]
    # In the folder are only those that are the same as they were.
    through = max((number for number in known.files if view.kept_file(number) is not None), default=None)
    if not left and through is not None and leads(through):
        return None
    if not left:
        first, last = min(known.files), max(known.files)
        why = (
            f"of the binlog files {view.name(first)} to {view.name(last)}, which were seen, none is left, and no "
            f"publisher was connected when {view.name(view.own_first)} and those after it were begun: they cannot be "
            "distinguished from those of a restored copy"
        )
        return Lost(why, unproven=True)
    newest = max(left)
    present = fingerprint(newest)
    if same_file(known.files[newest], present):
        return None
    why = (
        f"the binlog file {view.name(newest)} is another file than before ({present}, it was {known.files[newest]}): "
        "the server began its log anew (RESET MASTER), or it was restored from a backup"
    )
    return Lost(why)


def _lost_end(view: ServerState, read: Read) -> Lost | None:
    """Whether the server lost log that was read of it: in a crash without ``sync_binlog``, or with a copy of a disk."""
    size = view.own_size(read.order.file)
    cut = f"{view.name(read.order.file)} ends at {size}" if size is not None and size < read.order.offset else ""
    gone = f"the server has not executed {read.lacking}" if read.lacking else ""
    if not cut and not gone:
        return None
    signs = " and ".join(filter(None, (cut, gone)))
    why = f"the server lost the end of its log, which was read up to {view.place(read.order)}: {signs}"
    shared = LogPosition(read.order.incarnation, read.order.file, size) if cut and size is not None else None
    return Lost(why, shared=shared)
