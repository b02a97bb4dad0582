"""Believes certain answers of a server only after a second connection confirmed them.

Neither the text of an answer nor the frame of an event has a checksum. One byte changed in transit can look like
another server, a shorter log or a damaged event. Each of these holds flows until an operator acts. So the first such
answer is only recorded, and the query is repeated on another connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from wormhole.model.errors import Fatal, SourceUnavailable, UsageError

__all__ = ["Believe", "Confirmation", "Unconfirmed"]

T = TypeVar("T")

Believe = Callable[[str], None]
"""Called with the conclusion from an answer. Raises :class:`Unconfirmed` unless an answer on another connection led to
the same conclusion."""

_KEPT: Final = 256
_TRIES: Final = 6


class Unconfirmed(SourceUnavailable):
    """An answer that is not confirmed yet."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"to be confirmed over another connection: {what}",
            hint="it is asked again at once; if this repeats: look at the network between here and the server",
        )


class Confirmation:
    """The recent conclusions of each connection. Thread-safe. Beyond a limit the oldest is removed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, object] = {}

    def believe(self, what: str, connection: object) -> None:
        """Record that ``connection`` led to the conclusion ``what``. Raises :class:`Unconfirmed` unless another
        connection led to it too."""
        with self._lock:
            first = self._answers.setdefault(what, connection)
            if first is not connection:
                self._answers[what] = None
                return
            while len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]
        raise Unconfirmed(what)

    def by(self, connection: object) -> Believe:
        """`believe` for the conclusions of ``connection``."""
        return lambda what: self.believe(what, connection)

    def twice(self, ask: Callable[[], T]) -> T:
        """The result of ``ask``, which opens a new connection for each attempt. An error that needs an operator is
        raised only if it occurs twice.

        Raises that error, the other errors of ``ask``, and :class:`Unconfirmed` if no two results agree.
        """
        errors: list[str] = []
        for _ in range(_TRIES - 1):
            try:
                return ask()
            except Unconfirmed:
                pass
            except (Fatal, UsageError) as error:
                if str(error) in errors:
                    raise
                errors.append(str(error))
        return ask()
