"""Computes how far a flow is behind. Every command and the status page use it, so that they agree. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from wormhole.wire.v1 import admin_pb2

__all__ = ["Lag", "lag_of"]


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a flow. ``seconds``: age of the oldest transaction that is not acknowledged. ``bytes``: the bytes of
    the whole log. ``transactions``: the transactions of the flow's shard. ``None``: not known. ``unknown``: why
    ``seconds`` is not known or is a lower bound; empty if it is exact.
    """

    seconds: float | None
    bytes: int | None
    transactions: int | None
    unknown: str = ""

    @property
    def order(self) -> tuple[float, int]:
        """A key that sorts lags: a greater one is further behind."""
        return self.seconds or 0.0, self.bytes or 0


def lag_of(status: admin_pb2.PublisherStatus, flow: admin_pb2.FlowStatus) -> Lag:
    """The lag of a flow that ``status`` contains."""
    behind = flow.lag_bytes if flow.HasField("lag_bytes") else None
    transactions = flow.lag_transactions if flow.HasField("lag_transactions") else None
    if behind and not flow.lag_s and transactions is None:
        why = "the datamarker has no commit time and nothing was read after it"
        return Lag(None, behind, None, why)
    if behind is None and not flow.lag_s and transactions is None and not status.end_unknown:
        return Lag(None, None, None, "the log after the datamarker was not measured yet")
    unseen = f"the end of the log is not known: {status.end_unknown}" if status.end_unknown else ""
    return Lag(flow.lag_s, behind, transactions, unseen)
