"""The session in which a source queries its server. It opens again after a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from datastores.postgres.server.connection import Connection, SessionEnded
from wormhole.model.errors import SourceUnavailable

__all__ = ["Control"]

T = TypeVar("T")


class Control:
    """A session that runs one statement at a time. A broken session is replaced.

    ``within``: the context of each query, which adds to its errors. ``shut``: called if the server ended the last
    session and accepts no other.
    """

    def __init__(
        self,
        opened: Callable[[], Connection],
        within: Callable[[], AbstractContextManager[None]],
        shut: Callable[[SourceUnavailable], None] = lambda error: None,
    ) -> None:
        self.connection: Connection | None = None
        self._opened = opened
        self._within = within
        self._shut = shut
        self._ended = False
        self._asking = threading.Lock()

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Run ``question`` on the session, or on a new session if the old one is broken."""
        with self._asking:
            for last in (False, True):
                try:
                    if self.connection is None or not self.connection.is_open:
                        self.connection = self._opened()
                    with self._within():
                        answer = question(self.connection)
                except SourceUnavailable as error:
                    if self.connection is not None and self.connection.is_open:
                        raise
                    self._ended = self._ended or isinstance(error, SessionEnded)
                    self._drop()
                    if last:
                        if self._ended:
                            self._shut(error)
                        raise
                else:
                    self._ended = False
                    return answer
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the session. The next query opens a new one."""
        with self._asking:
            self._drop()

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
