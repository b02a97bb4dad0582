"""What a server's answer must say twice, on two connections, before it is believed.

Neither the text of an answer nor the frame of an event carries a checksum, so one byte that changes on its way can look
like another server, a shorter log or a damaged event. Each of these holds flows until somebody acts. So the first such
answer is only remembered, and the question is put again over another connection: what is true is said again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from wormhole.model.errors import Fatal, SourceUnavailable, UsageError

__all__ = ["Believe", "Doubted", "Doubts"]

T = TypeVar("T")

Believe = Callable[[str], None]
"""Called with what an answer says. Raises :class:`Doubted` unless an answer over another connection said the same."""

_KEPT: Final = 256
_TRIES: Final = 6


class Doubted(SourceUnavailable):
    """An answer that no second one has confirmed yet."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"to be confirmed over another connection: {what}",
            hint="it is asked again at once; if this repeats: look at the network between here and the server",
        )


class Doubts:
    """What was said by one connection so far. Thread-safe; bounded: the oldest is forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, object] = {}

    def believe(self, what: str, connection: object) -> None:
        """``connection`` says ``what``. Raises :class:`Doubted` unless another one said the same: then it is believed
        from now on."""
        with self._lock:
            first = self._said.setdefault(what, connection)
            if first is not connection:
                self._said[what] = None
                return
            while len(self._said) > _KEPT:
                del self._said[next(iter(self._said))]
        raise Doubted(what)

    def by(self, connection: object) -> Believe:
        """`believe` for what ``connection`` says."""
        return lambda what: self.believe(what, connection)

    def twice(self, ask: Callable[[], T]) -> T:
        """The answer to ``ask``, which connects anew each time. An error that somebody has to act on has to come twice.

        Raises that error, what else ``ask`` raises, and :class:`Doubted` when no two answers agree.
        """
        said: list[str] = []
        for _ in range(_TRIES - 1):
            try:
                return ask()
            except Doubted:
                pass
            except (Fatal, UsageError) as error:
                if str(error) in said:
                    raise
                said.append(str(error))
        return ask()
