"""Since when the publication is the one that there is now.

The server decodes its log with the catalogues of that time. What was written between a DROP PUBLICATION and the CREATE
PUBLICATION behind it belongs to none: the server refuses to decode it, and newer servers pass over it in silence. So
the publication's number is kept, and the end of the log at which a new one was first seen.
"""

from __future__ import annotations

from typing import Final

from datastores.common.kept_state import keep, load, not_ours
from datastores.postgres.server.state import ServerState
from wormhole.ports.source_state import SourceState

__all__ = ["DOCUMENT", "SILENT_SINCE", "Publication"]

DOCUMENT: Final = "publication"
"""The document of a source's state that has it."""

SILENT_SINCE: Final = 180000
"""The version of the server since which changes without their publication are passed over instead of refused."""


class Publication:
    """Used by one thread at a time. ``since``: where another publication than before was first seen; 0 where that never
    happened. What lies behind it was written while that publication was there. ``until``: where the one before was last
    seen; 0 where that is not known.
    """

    def __init__(self, state: SourceState) -> None:
        """``state``: where it is kept. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
        self._state = state
        known = load(state, DOCUMENT)
        self._oid, self.since, self.until = (known.get(name, 0) for name in ("oid", "since", "until"))
        if not all(type(one) is int for one in (self._oid, self.since, self.until)):
            raise not_ours(state, DOCUMENT)
        self._seen = 0  # where the present one was last seen

    def observe(self, state: ServerState) -> bool:
        """Whether another publication is there than before. Raises
        :class:`~wormhole.model.errors.SourceUnavailable` when that cannot be kept, and what else the state of the
        source raises that passes by itself; it is found again then.
        """
        found = state.publication_oid
        if found == self._oid:
            self._seen = state.end
        if found in {0, self._oid}:
            return False
        again = bool(self._oid)
        since, until = state.end if again else 0, self._seen
        keep(self._state, DOCUMENT, {"oid": found, "since": since, "until": until})
        self._oid, self.since, self.until, self._seen = found, since, until, state.end
        return again
