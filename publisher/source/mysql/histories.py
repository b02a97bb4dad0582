"""Which history of which server the places are of: the incarnations of a log, kept on disk.

A place (file, offset) means something in one history of one server only. Another one begins when the server behind the URL is another
(failover, restore) or began its log anew (``RESET MASTER``). The second is told by its files: the log's end falls, or a file that was seen
before is another one now. A file's fingerprint is what its format description says: in which second and by which server it was begun.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from publisher.source.mysql.view import View
from publisher.source.state_file import read_state, write_state
from wormhole.errors import Diverged, SourceUnavailable
from wormhole.position import Datamarker, LogPosition

__all__ = ["Histories"]

_FINGERPRINTS: Final = 4096


class Histories:
    """Thread-safe. Every change is on disk before a place of the new incarnation can be handed out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: list[dict[str, Any]] = read_state(path).get("incarnations", [])

    @property
    def current(self) -> int:
        """The incarnation of the log as it was last seen; 0 before that."""
        with self._lock:
            return int(self._known[-1]["number"]) if self._known else 0

    @property
    def reached(self) -> LogPosition:
        """The highest file that was seen in the current incarnation; zeros before that."""
        with self._lock:
            return self._reached()

    def observe(self, view: View, since: LogPosition | None = None) -> int:
        """The incarnation that the server's log is in, with this view of it. Raises :class:`SourceUnavailable` when it cannot be noted.

        ``since``: how far the log was seen before the server was asked, at least `reached`: a log that ends before that began anew. What only
        a reader saw since then may be missing in the view; without ``since`` nobody saw any.
        """
        highest = view.files[-1][0]
        with self._lock:
            since = since or self._reached()
            last = self._known[-1] if self._known else None
            if last is None or last["server"] != view.identity:
                before = next((one for one in reversed(self._known) if one["server"] == view.identity), None)
                self._begin(view.identity, highest, reset=before is not None and highest < before["highest"])
            elif view.end < (since.file, since.offset) and since.incarnation == last["number"]:
                self._begin(view.identity, highest, reset=True)
            elif highest > last["highest"]:
                last["highest"] = highest
                self._save()
            return int(self._known[-1]["number"])

    def check_file(self, incarnation: int, number: int, fingerprint: str) -> None:
        """The stream shows the beginning of file ``number``.

        Raises :class:`Diverged` when it is not the file that it was, :class:`SourceUnavailable` when another incarnation began meanwhile.
        """
        with self._lock:
            one = self._known[-1]
            if one["number"] != incarnation:
                raise SourceUnavailable(
                    f"the log is in incarnation {one['number']} now, and this reader was opened in {incarnation}",
                    hint="it is opened again, which looks whether there is a way to the new one",
                )
            files = one["files"]
            known = files.get(str(number))
            if known == fingerprint:
                return
            if known is not None:
                self._begin(one["server"], number, reset=True)
                self._known[-1]["files"][str(number)] = fingerprint
                self._save()
                raise Diverged(
                    f"binlog file {number} is another file than before: the server began its log anew",
                    hint="RESET MASTER, or a restored server; start the application anew from a place you choose",
                )
            files[str(number)] = fingerprint
            while len(files) > _FINGERPRINTS:
                del files[min(files, key=int)]
            one["highest"] = max(one["highest"], number)
            self._save()

    def knows_file(self, number: int) -> bool:
        """Whether the file was seen in the current incarnation."""
        with self._lock:
            return bool(self._known) and str(number) in self._known[-1]["files"]

    def check_way(self, marker: Datamarker) -> None:
        """Whether the way from the marker's incarnation to the present one may be bridged by GTIDs.

        Raises :class:`Diverged` when the incarnation is not known here, or its server began its log anew since.
        """
        number = marker.order.incarnation
        with self._lock:
            start = next((i for i, one in enumerate(self._known) if one["number"] == number), None)
            if start is None:
                raise Diverged(
                    f"the datamarker {marker} is of incarnation {number}, which was never seen here; the log is in {self._numbers()}",
                    position=str(marker.order),
                    hint="a publisher on another host needs the state_dir of the one before; else start the application anew",
                )
            server = self._known[start]["server"]
            for one in self._known[start + 1 :]:
                if one["server"] == server and one["reset"]:
                    raise Diverged(
                        f"the datamarker {marker} is of incarnation {number}; since then the server began its log anew ({one['number']})",
                        position=str(marker.order),
                        hint="RESET MASTER, or a restored server: start the application anew from a place you choose",
                    )

    # --- inside, with the lock held ----------------------------------------------------------------------------

    def _reached(self) -> LogPosition:
        last = self._known[-1] if self._known else {"number": 0, "highest": 0}
        return LogPosition(int(last["number"]), int(last["highest"]), 0)

    def _numbers(self) -> str:
        return str(self._known[-1]["number"]) if self._known else "none"

    def _begin(self, server: str, highest: int, *, reset: bool) -> None:
        number = int(self._known[-1]["number"]) + 1 if self._known else 1
        self._known.append({"number": number, "server": server, "highest": highest, "reset": reset, "files": {}})
        self._save()

    def _save(self) -> None:
        try:
            write_state(self._path, {"incarnations": self._known})
        except OSError as error:
            raise SourceUnavailable(
                f"{self._path} cannot be written: {error.strerror}", hint="make space in the publisher's state_dir"
            ) from error
