"""Whether the log of a server is still the one that was seen of it. Asked whenever the server was out of sight.

MariaDB's servers have no identity of their own, and a copy of a MySQL server keeps its uuid and gives the same GTIDs
again: a server that was restored from an older backup, and wrote and purged until its numbers were past those that were
seen, looks like one that only purged. What tells them apart are the files: the newest one that was seen and is still
there must be the same. Its numbers being without holes, that proves the history up to it. Where none is left, nothing
can prove it. A connection that never broke proves it too: nobody restores a server below one.
"""

from __future__ import annotations

from collections.abc import Callable

from publisher.source.mysql.doubts import Believe
from publisher.source.mysql.histories import Histories, Lost, same_file
from publisher.source.mysql.view import View

__all__ = ["lost_history"]


def lost_history(histories: Histories, view: View, fingerprint: Callable[[int], str], believe: Believe) -> Lost | None:
    """Why the server's log is not the one that was seen of it, or cannot be shown to be. ``None``: it is, or is new.

    ``fingerprint`` reads that of a file. ``believe``: called with what speaks against it; raises when that has to be
    confirmed first.
    """
    known = histories.known(view.identity)
    if known is None or not known.files:
        return None
    left = [number for number in known.files if view.size(number) is not None]
    if not left:
        first, last = min(known.files), max(known.files)
        why = (
            f"of the binlog files {view.name(first)} to {view.name(last)}, which were seen, none is left, and "
            f"no publisher was connected when {view.name(view.first)} and those after it were begun: they cannot be told "
            "from those of a restored copy"
        )
        believe(why)
        return Lost(why, unproven=True)
    newest = max(left)
    present = fingerprint(newest)
    if same_file(known.files[newest], present):
        return None
    why = (
        f"the binlog file {view.name(newest)} is another file than before ({present}, it was {known.files[newest]}): "
        "the server began its log anew (RESET MASTER), or it was restored from a backup"
    )
    believe(why)
    return Lost(why)
