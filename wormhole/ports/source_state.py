"""The port to a source's stored knowledge of the servers behind its log, which it needs again at its next start."""

from __future__ import annotations

from typing import Any, Final, Protocol

__all__ = ["HISTORIES", "SourceState"]

HISTORIES: Final = "histories"
"""The document with the incarnations of the log. It is the only one that all copies of the log share."""


class SourceState(Protocol):
    """Small documents by name, each replaced as a whole.

    In a folder they belong to one host. In ZooKeeper every host that may read the log finds them. A document is JSON:
    texts, whole numbers, lists and objects. Both methods may block: call them in a thread.
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
