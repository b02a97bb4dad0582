"""Decides whether a caravan leaves a flow behind inside a transaction that its buffer does not hold completely. Pure.

A flow that is left between transactions continues where it was. Inside a large transaction its place is the beginning
of the transaction, so everything from there on is read again. Two rules bound the cost, whatever the size of the
buffer:

* Flows wait for a slower one as long as reading again would take, and at least for a short time. So flows of the same
  speed, each late for a moment now and then, are not left. And a slow flow delays the others in a transaction by no
  more than the time that reading again takes.
* A flow that was left inside a transaction is left there again only at twice the distance. So at most twice the
  transaction is read again for a flow.

A flow that takes nothing for :data:`STALLED_S` is left in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from caravan.flow import CaravanFlow

__all__ = ["STALLED_S", "Patience"]

STALLED_S: Final = 5.0
_LEAST_S: Final = 0.25
_BYTES_PER_S: Final = 64 << 20  # the assumed lowest rate at which log is read again


@dataclass(slots=True)
class _Waited:
    """The waiting for one flow: ``seconds`` in all, and ``still``: the part of them since it took something at
    ``cursor``.
    """

    cursor: int | None
    seconds: float = 0.0
    still: float = 0.0


class Patience:
    """The time for which one caravan waited for each of its flows, in seconds."""

    def __init__(self) -> None:
        self._waited: dict[CaravanFlow, _Waited] = {}

    def ends(self, tail: Iterable[CaravanFlow]) -> list[CaravanFlow]:
        """The flows of ``tail``, which delay others, that are left behind now."""
        return [flow for flow in tail if not flow.behind_bytes or self._is_over(flow)]

    def _is_over(self, flow: CaravanFlow) -> bool:
        waited = self._waited.get(flow)
        if waited is None:
            return False
        if waited.still >= STALLED_S:
            return True
        return flow.may_go_back and waited.seconds >= max(_LEAST_S, flow.behind_bytes / _BYTES_PER_S)

    def wait(self, tail: list[CaravanFlow], seconds: float) -> None:
        """Add ``seconds`` of waiting, which the flows of ``tail`` share."""
        for flow in tail:
            waited = self._waited.setdefault(flow, _Waited(flow.cursor))
            if waited.cursor != flow.cursor:
                waited.cursor, waited.still = flow.cursor, 0.0
            waited.still += seconds
            waited.seconds += seconds / len(tail)

    def forget(self, flow: CaravanFlow) -> None:
        """Forget a flow that left."""
        self._waited.pop(flow, None)
