"""Notices that the publication was dropped and created again, and at which place of the log.

The server decodes each part of its log with the catalogues of the time when that part was written. Log that was written
between a DROP PUBLICATION and the next CREATE PUBLICATION belongs to no publication. Servers before 18 refuse to decode
it, and newer ones skip it silently. So the publication's OID is stored, with the end of the log at which a new OID was
first found.
"""

from __future__ import annotations

from typing import Final

from datastores.common.kept_state import keep, load, not_ours
from datastores.postgres.server.state import ServerState
from wormhole.ports.source_state import SourceState

__all__ = ["DOCUMENT", "SILENT_SINCE", "Publication"]

DOCUMENT: Final = "publication"
"""The document of a source's state with the publication's OID and the places."""

SILENT_SINCE: Final = 180000
"""The first server version that skips log written without the publication instead of refusing it."""


class Publication:
    """Used by one thread at a time.

    ``since``: the end of the log when a new publication was first found; 0: that never happened. Later log was written
    with that publication. ``until``: the end of the log when the former publication was last found; 0: unknown.
    """

    def __init__(self, state: SourceState) -> None:
        """``state``: stores the OID and the places. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
        self._state = state
        known = load(state, DOCUMENT)
        self._oid, self.since, self.until = (known.get(name, 0) for name in ("oid", "since", "until"))
        if not all(type(one) is int for one in (self._oid, self.since, self.until)):
            raise not_ours(state, DOCUMENT)
        self._seen = 0  # the end of the log when the present publication was last found

    def observe(self, state: ServerState) -> bool:
        """Check the publication. Returns whether it was dropped and created again since the last call.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if that cannot be stored, and the other transient
        errors of the source's state. The next call then finds the change again.
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
