"""Checks after every interruption of the connection whether a server's log is still the one that was read.

MariaDB's servers have no identity. A copy of a MySQL server keeps its uuid and uses the same GTIDs again. Suppose a
server was restored from an older backup, then wrote and purged until its numbers exceeded the known ones. It looks like
a server that only purged. Only the files distinguish the two: the newest known file that still exists must be the same.
This proves the history up to that file, because the files' numbers have no gaps. If no known file is left, there is no
proof. An unbroken connection is also a proof, because a server is not restored while it serves one.
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
    """The log was read up to ``order``. ``lacking``: the GTIDs before it that the server has not executed."""

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
    """Why the server's log is not, or not provably, the known one. ``None``: it is, or no log is known.

    ``fingerprint`` reads a file's fingerprint. ``believe`` is called with the reason, and raises if the reason must be
    confirmed first. ``read``: how far the present log was read. ``leads``: returns whether the folder's files from a
    number on continue up to the server's first file.
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
    # The view includes only those files of the folder that did not change.
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
    """The end of the log that was read and that the server lost, in a crash without ``sync_binlog`` or by a copied
    disk."""
    size = view.own_size(read.order.file)
    cut = f"{view.name(read.order.file)} ends at {size}" if size is not None and size < read.order.offset else ""
    gone = f"the server has not executed {read.lacking}" if read.lacking else ""
    if not cut and not gone:
        return None
    signs = " and ".join(filter(None, (cut, gone)))
    why = f"the server lost the end of its log, which was read up to {view.place(read.order)}: {signs}"
    shared = LogPosition(read.order.incarnation, read.order.file, size) if cut and size is not None else None
    return Lost(why, shared=shared)
