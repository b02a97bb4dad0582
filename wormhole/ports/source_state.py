"""The port to what a source knows of the servers behind its log, and has to find again at its next start."""

from __future__ import annotations

from typing import Any, Final, Protocol

__all__ = ["HISTORIES", "SourceState"]

HISTORIES: Final = "histories"
"""The document with the incarnations of the log: the one that copies of the log have in common."""


class SourceState(Protocol):
    """Small documents by name, each replaced whole. A folder has them of one host; ZooKeeper has them for each host
    that may read the log.

    A document is JSON: texts, whole numbers, lists and objects. Both methods may block: call them in a thread.
    """

    def read(self, name: str) -> dict[str, Any]:
        """The document as it was last written; empty where there is none.

        Raises ``OSError`` for a folder, :class:`~wormhole.model.errors.WormholeError` elsewhere.
        """

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace the document. It is durable when this returns.

        Raises ``OSError`` for a folder, :class:`~wormhole.model.errors.WormholeError` elsewhere (retryable while the
        service does not answer); the document may have been written all the same then.
        """
