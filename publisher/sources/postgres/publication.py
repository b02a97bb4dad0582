"""Since when the publication is the one that there is now.

The server decodes its log with the catalogues of that time. What was written between a DROP PUBLICATION and the CREATE
PUBLICATION behind it belongs to none: the server refuses to decode it, and newer servers pass over it in silence. So
the publication's number is kept, and the end of the log at which a new one was first seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from publisher.sources.postgres.server_state import ServerState
from publisher.sources.state_file import read_state, write_state
from wormhole.model.errors import SourceUnavailable

__all__ = ["SILENT_SINCE", "Publication"]

SILENT_SINCE: Final = 180000
"""The version of the server since which changes without their publication are passed over instead of refused."""


class Publication:
    """Used by one thread at a time. ``since``: where another publication than before was first seen; 0 where that never
    happened. What lies behind it was written while that publication was there. ``until``: where the one before was last
    seen; 0 where that is not known.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        known = read_state(path)
        self._oid = int(known.get("oid", 0))
        self.since = int(known.get("since", 0))
        self.until = int(known.get("until", 0))
        self._seen = 0  # where the present one was last seen

    def observe(self, state: ServerState) -> bool:
        """Whether another publication is there than before. Raises
        :class:`~wormhole.model.errors.SourceUnavailable` when that cannot be noted.
        """
        if state.publication_oid == self._oid:
            self._seen = state.end
        if state.publication_oid in {0, self._oid}:
            return False
        again = bool(self._oid)
        self._oid, self.since, self.until = state.publication_oid, state.end if again else 0, self._seen
        self._seen = state.end
        try:
            write_state(self._path, {"oid": self._oid, "since": self.since, "until": self.until})
        except OSError as error:
            raise SourceUnavailable(
                f"{self._path} cannot be written: {error.strerror}", hint="make space in the publisher's state_dir"
            ) from error
        return again
