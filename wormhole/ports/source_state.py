"""The port (interface) by which a source stores what it knows of its log's servers, for its next start."""

from __future__ import annotations

from typing import Any, Final, Protocol

__all__ = ["HISTORIES", "SourceState"]

HISTORIES: Final = "histories"
"""The document with the incarnations of the log. All copies of the log share it, and no other document."""


class SourceState(Protocol):
    """Small documents by name, each replaced as a whole.

    Documents in a folder belong to one host. Documents in ZooKeeper are for every host that may read the log. A
    document is JSON: texts, whole numbers, lists and objects. Both methods may block: call them in a thread.
    """

    def read(self, name: str) -> dict[str, Any]:
        """The document as it was last written; empty if there is none.

        Raises ``OSError`` for a folder, :class:`~wormhole.model.errors.WormholeError` elsewhere.
        """

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace the document. It is durable when this returns.

        Raises ``OSError`` for a folder, and :class:`~wormhole.model.errors.WormholeError` elsewhere (retryable while
        the service does not answer). After an error the document may have been written all the same.
        """
