"""What several hosts share of a log's state, in this process."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

__all__ = ["HostsState"]


class HostsState:
    """Implements :class:`~wormhole.ports.source_state.SourceState` and what a store of markers has beside it.
    ``refuses``: what every call raises."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.refuses: Exception | None = None
        self.writes = 0

    def read(self, name: str) -> dict[str, Any]:
        self._check()
        found: dict[str, Any] = json.loads(self.documents.get(name, "{}"))
        return found

    def names(self) -> Collection[str]:
        self._check()
        return list(self.documents)

    def write(self, name: str, content: dict[str, Any]) -> None:
        self._check()
        self.documents[name] = json.dumps(content)
        self.writes += 1

    def _check(self) -> None:
        if self.refuses is not None:
            raise self.refuses
