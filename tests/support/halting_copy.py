"""A scripted subscriber that keeps a copy, and leaves it to an operator what becomes of a loss of log."""

from __future__ import annotations

from tests.support.copying_subscriber import CopyingSubscriber
from wormhole.wire.rows import decode_key
from wormhole.wire.v1 import push_pb2

__all__ = ["HaltingCopy"]


class HaltingCopy(CopyingSubscriber):
    """Halts at every loss, and removes what it did not receive of a range."""

    def __init__(self, wire: object) -> None:
        super().__init__(wire)  # type: ignore[arg-type]
        self.wire.takes_ranges = True
        self.generations: list[int] = []

    def _apply(self, frame: push_pb2.PublisherFrame) -> None:
        super()._apply(frame)
        for update in self.wire.updates(frame):
            if update.old_key is not None:
                self.rows[update.table].pop(update.old_key, None)

    async def _process(self, frame: push_pb2.PublisherFrame) -> None:
        match frame.WhichOneof("kind"):
            case "data_loss":
                loss = frame.data_loss
                await self.wire.says(
                    loss_decision=push_pb2.LossDecision(flow=loss.flow, epoch=loss.epoch, proceed=False)
                )
            case "chunk_end":
                self.frames.append("chunk_end")
                rows = self.rows[self.wire._schemas[frame.chunk_end.schema].table]
                for row in frame.chunk_end.alone:
                    key = decode_key(row.SerializeToString())
                    if key in rows and rows[key][0] < self.generation:
                        del rows[key]
            case "assign":
                self.generations.append(frame.assign.generation)
                await super()._process(frame)
            case _:
                await super()._process(frame)
