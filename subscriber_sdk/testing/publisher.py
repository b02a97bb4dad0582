"""A scripted publisher in memory: real frames through the real session, no socket."""

from __future__ import annotations

from collections.abc import Iterable

from subscriber_sdk.options.admission import Admission
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.connection import PublisherConnection
from subscriber_sdk.stream.session import Session
from subscriber_sdk.work.shards import Shards
from wormhole.model.position import Anchor, Datamarker, LastAck, LogPosition
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import UpdatePlace, place_to_message
from wormhole.wire.markers import ack_to_message, marker_to_message
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["ScriptedPublisher", "frames", "marker_at"]

Frame = push_pb2.PublisherFrame


def marker_at(number: int, incarnation: int = 1) -> Datamarker:
    """The datamarker after transaction ``number`` of a test's log."""
    place = LogPosition(incarnation, 1, number)
    before = LogPosition(incarnation, 1, number - 1)
    anchor = Anchor(f"test:{number}", number, before) if number else None
    return Datamarker(place, str(number), place, anchor)


class frames:  # noqa: N801 - a namespace of functions
    """Builders of a publisher's frames, with the usual values filled in."""

    @staticmethod
    def hello(application: str, subscriber: str = "", **fields: object) -> Frame:
        """The first frame of a stream."""
        given: dict[str, object] = {
            "min_version": 3,
            "max_version": 3,
            "publisher": "test/test/log@localhost:1",
            "heartbeat_ms": 1000,
            "max_frame_bytes": 1 << 20,
            **fields,
        }
        return Frame(hello=push_pb2.Hello(application=application, subscriber=subscriber, **given))  # type: ignore[arg-type]

    @staticmethod
    def assign(
        flow: int,
        epoch: int,
        application: str,
        shard: str,
        marker: Datamarker,
        *,
        replayed: bool = False,
        skip: Iterable[str] = (),
        park: bool = False,
        parked: Iterable[tuple[bytes, UpdatePlace]] = (),
        rolled_back: str = "",
        rewound: bool = False,
        move: int = 0,
        acknowledged: bool = False,
        last_ack: LastAck | None = None,
        yields: bool = False,
        generation: int = 0,
        verify: push_pb2.Verify = push_pb2.VERIFY_NONE,
    ) -> Frame:
        """Open a flow."""
        assign = push_pb2.Assign(
            flow=flow,
            epoch=epoch,
            application=application,
            shard=shard,
            marker=marker_to_message(marker),
            replayed=replayed,
            skip=skip,
            park=park,
            rolled_back=rolled_back,
            rewound=rewound,
            move=move,
            acknowledged=acknowledged,
            last_ack=ack_to_message(last_ack),
            yields=yields,
            generation=generation,
            verify=verify,
        )
        for row, place in parked:
            assign.parked.add(key=update_pb2.RowKey.FromString(row), first=place_to_message(place))
        return Frame(assign=assign)

    @staticmethod
    def schema(schema: Schema) -> Frame:
        """The frame with a schema, which comes before the first use of the schema."""
        return Frame(schema=push_pb2.SchemaFrame(id=schema.id, canonical=schema.canonical))

    @staticmethod
    def batch(
        flow: int, epoch: int, number: int, body: bytes, *, replayed: bool = False, unfinished: bool = False
    ) -> Frame:
        """A whole batch. ``unfinished``: whether its last transaction continues in the next batch."""
        return Frame(
            batch=push_pb2.Batch(
                flow=flow, epoch=epoch, number=number, body=body, replayed=replayed, unfinished=unfinished
            )
        )

    @staticmethod
    def parts(flow: int, epoch: int, number: int, body: bytes, size: int) -> list[Frame]:
        """A batch in parts of ``size`` bytes."""
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        return [
            Frame(
                part=push_pb2.Part(
                    flow=flow,
                    epoch=epoch,
                    number=number,
                    index=index,
                    last=index == len(pieces) - 1,
                    total_bytes=len(body),
                    data=piece,
                )
            )
            for index, piece in enumerate(pieces)
        ]

    @staticmethod
    def datamarker(flow: int, epoch: int, marker: Datamarker) -> Frame:
        """A datamarker between batches."""
        return Frame(datamarker=push_pb2.DatamarkerFrame(flow=flow, epoch=epoch, marker=marker_to_message(marker)))

    @staticmethod
    def chunk_end(flow: int, epoch: int, end: push_pb2.ChunkEnd) -> Frame:
        """The frame after the last row of a range. ``end`` has all fields except flow and epoch."""
        frame = Frame(chunk_end=end)
        frame.chunk_end.flow, frame.chunk_end.epoch = flow, epoch
        return frame

    @staticmethod
    def scan_end(flow: int, epoch: int, table: str, generation: int, rows: int = 0) -> Frame:
        """The frame after the last row of a table."""
        return Frame(scan_end=push_pb2.ScanEnd(flow=flow, epoch=epoch, table=table, generation=generation, rows=rows))

    @staticmethod
    def parked(flow: int, epoch: int, update_id: str, refused: str = "") -> Frame:
        """The answer to an update that was sent for parking."""
        return Frame(parked=push_pb2.Parked(flow=flow, epoch=epoch, update_id=update_id, refused=refused))

    @staticmethod
    def revoke(flow: int, epoch: int, cause: str = "") -> Frame:
        """Take a flow back."""
        return Frame(revoke=push_pb2.Revoke(flow=flow, epoch=epoch, cause=cause))


class ScriptedPublisher:
    """The publisher's half of one stream.

    ``received`` holds every frame of the subscriber, ``closed`` whether it ended the stream.
    """

    def __init__(self, shards: Shards, options: Options) -> None:
        session = Session(
            Admission(options.application, options.instance),
            max_frame_bytes=options.max_frame,
            max_body_bytes=options.max_body,
            now=0.0,
            abilities=shards.abilities,
            accounts=shards.accounts("test"),
        )
        self.received: list[push_pb2.SubscriberFrame] = []
        self.connection = PublisherConnection(session, shards, self._drain)
        self._known: set[int] = set()

    @property
    def closed(self) -> bool:
        """Whether the subscriber ended the stream."""
        return self.connection.closed

    def send(self, *given: Frame, now: float = 0.0) -> None:
        """Frames in one message."""
        self.connection.receive(push_pb2.PublisherMessage(frames=given).SerializeToString(), now)

    def teach(self, schemas: Iterable[Schema]) -> None:
        """Send the schemas that were not sent on this stream yet."""
        new = [schema for schema in schemas if schema.id not in self._known]
        self._known.update(schema.id for schema in new)
        if new:
            self.send(*map(frames.schema, new))

    def take(self, kind: str) -> list[push_pb2.SubscriberFrame]:
        """Remove the frames of one kind from ``received``, and return them."""
        taken = [frame for frame in self.received if frame.WhichOneof("kind") == kind]
        self.received = [frame for frame in self.received if frame.WhichOneof("kind") != kind]
        return taken

    def vanish(self) -> None:
        """The connection is cut."""
        self.connection.lost("cut by the test")

    def _drain(self) -> None:
        while (data := self.connection.take_output(0.0)) is not None:
            self.received.extend(push_pb2.SubscriberMessage.FromString(data).frames)
