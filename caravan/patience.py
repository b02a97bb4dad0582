"""Whether a caravan leaves a flow behind that is inside a transaction which its buffer does not hold whole. Pure.

A flow that is left between transactions goes on where it was. Inside a large transaction its place is the begin of
that, so all of it up to there is read again. Two rules bound what that costs, whatever the size of the buffer:

* Flows wait for one that is slower for as long as reading again would take, and a moment at least. Flows of the same
  speed, each late for a moment now and then, are not left, and a slow one holds up the others for no longer in a
  transaction than the log takes that it makes to be read.
* A flow that was left inside a transaction is left there again only at twice the distance. So what is read again for a
  flow is at most twice the transaction.

One that takes nothing at all for :data:`STALLED_S` is left in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from caravan.flow import CaravanFlow

__all__ = ["STALLED_S", "Patience"]

STALLED_S: Final = 5.0
_LEAST_S: Final = 0.25
_BYTES_PER_S: Final = 64 << 20  # so fast is log read again, at the least


@dataclass(slots=True)
class _Waited:
    """For one flow: ``seconds`` in all, and ``still`` of these since it took something at ``cursor``."""

    cursor: int | None
    seconds: float = 0.0
    still: float = 0.0


class Patience:
    """What one caravan waited for each of its flows. Times are in seconds."""

    def __init__(self) -> None:
        self._waited: dict[CaravanFlow, _Waited] = {}

    def ends(self, tail: Iterable[CaravanFlow]) -> list[CaravanFlow]:
        """The flows of ``tail``, which hold up others, that are left behind now."""
        return [flow for flow in tail if not flow.behind_bytes or self._is_over(flow)]

    def _is_over(self, flow: CaravanFlow) -> bool:
        waited = self._waited.get(flow)
        if waited is None:
            return False
        if waited.still >= STALLED_S:
            return True
        return flow.may_go_back and waited.seconds >= max(_LEAST_S, flow.behind_bytes / _BYTES_PER_S)

    def wait(self, tail: list[CaravanFlow], seconds: float) -> None:
        """So long was waited for the flows of ``tail``, which share it."""
        for flow in tail:
            waited = self._waited.setdefault(flow, _Waited(flow.cursor))
            if waited.cursor != flow.cursor:
                waited.cursor, waited.still = flow.cursor, 0.0
            waited.still += seconds
            waited.seconds += seconds / len(tail)

    def forget(self, flow: CaravanFlow) -> None:
        """The flow left."""
        self._waited.pop(flow, None)
