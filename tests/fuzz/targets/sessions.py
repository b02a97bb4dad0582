"""What one side of a stream says to the other: frames of version 3, with parked updates, rows that they hold,
reports, what comparing rows found, and the ends of existing rows."""

from __future__ import annotations

import random
from types import ModuleType

from publisher.flows.verifications import Verifications
from publisher.push.flow import PublisherFlow
from subscriber_sdk.backfill import key_range
from subscriber_sdk.calls.gate import Gate
from subscriber_sdk.options.admission import Admission
from subscriber_sdk.testing import frames, marker_at, update
from tests.fuzz.target import Target
from tests.support.letters import USERS, letter, parcel_of
from wormhole.filters import Filter
from wormhole.model.errors import ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import open_parcel, parked_rows, place_to_message
from wormhole.push.parking import open_letter
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2, update_pb2

_Frame = push_pb2.SubscriberFrame
_HELLO = push_pb2.Hello(
    min_version=3, max_version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20, heartbeat_ms=3000
)
_WELCOME = _Frame(
    welcome=push_pb2.Welcome(version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20, verifies=True)
).SerializeToString()
_EPOCH = 7
_KEY = Schema("users", (Column("id", "int"),), ())
_CHUNK = ChunkRange("users", _KEY, None, None, 0, 1, LogPosition(1, 1, 1))
_SENT = 20
"""READ updates of that chunk."""
_UPDATE = open_parcel(parcel_of(update("users", key=1, after={"name": "ada"}), 50))


_OPENED = push_pb2.PublisherMessage(
    frames=[
        frames.hello("app", "sub"),
        frames.schema(_KEY),
        frames.assign(1, _EPOCH, "app", "log", marker_at(0), generation=1),
    ]
).SerializeToString()
"""A flow with a backfill, to the subscriber."""


def _park(rng: random.Random) -> list[_Frame]:
    """An update to be parked, in one to three pieces."""
    number = rng.randrange(1, 99)
    told, parcel = letter(number, rng.randrange(1, 9), error=rng.choice(("", "boom", "é" * 40)))
    size = rng.choice((len(parcel.body), 20, 50))
    pieces = [parcel.body[start : start + size] for start in range(0, len(parcel.body), size)]
    parks = [
        push_pb2.Park(flow=1, epoch=_EPOCH, update_id=told.id, body=piece, more=piece is not pieces[-1])
        for piece in pieces
    ]
    parks[-1].schema, parks[-1].error = parcel.schema, told.error
    parks[-1].place.CopyFrom(place_to_message(told.place))
    return [_Frame(park=park) for park in parks]


def _report(rng: random.Random) -> _Frame:
    handler = push_pb2.HandlerReport(
        updates=rng.randrange(1 << 40),
        busy_s=rng.random(),
        failures=rng.randrange(9),
        slowest_table="users",
        slowest_s=rng.random(),
        queued_bytes=rng.randrange(1 << 30),
        running_update=rng.choice(("", "s:1:0")),
        running_s=rng.random(),
        skipped=rng.randrange(9),
        parked=rng.randrange(9),
    )
    return _Frame(report=push_pb2.Report(flow=1, epoch=_EPOCH, handler=handler))


def _value(rng: random.Random) -> update_pb2.Value:
    return rng.choice(
        (
            update_pb2.Value(int=rng.randrange(99)),
            update_pb2.Value(text="é" * rng.randrange(9)),
            update_pb2.Value(decimal=rng.choice(("1.50", "1e999999999", "no number"))),
            update_pb2.Value(double=rng.random()),
            update_pb2.Value(null=True),
            update_pb2.Value(),
        )
    )


def _verified(rng: random.Random) -> _Frame:
    """What comparing the rows of a table found."""
    kind_of = push_pb2.Difference
    kinds = rng.choices((kind_of.DIFFERS, kind_of.MISSING, kind_of.EXTRA), k=rng.randrange(4))
    extra = kinds.count(push_pb2.Difference.EXTRA)
    verified = push_pb2.Verified(
        flow=1,
        epoch=_EPOCH,
        table=_CHUNK.table,
        compared=rng.randrange(6),
        extra=extra,
        not_compared=rng.randrange(9),
        trouble=rng.choice(("", "é" * 40)),
    )
    for kind in kinds:
        columns = ("name",) if kind == push_pb2.Difference.DIFFERS else ()
        key = update_pb2.RowKey(values=[_value(rng) for _ in range(rng.randrange(1, 3))])
        verified.differences.append(push_pb2.Difference(kind=kind, key=key, columns=columns))
    return _Frame(verified=verified)


def _answers(rng: random.Random) -> bytes:
    """What a subscriber says of a flow that it was just given."""
    said = [_Frame(accepted=push_pb2.Accepted(flow=1, epoch=_EPOCH, credit=1 << 20))]
    for _ in range(rng.randrange(1, 4)):
        said += rng.choices((_park(rng), [_report(rng)], [_verified(rng)]), (5, 2, 4))[0]
    if said[-1].HasField("verified"):
        said[-1].verified.ended = not said[-1].verified.extra
        said[-1].verified.confirm = not said[-1].verified.ended
    if rng.random() < 0.3:
        said.append(_Frame(released=push_pb2.Released(flow=1, epoch=_EPOCH, marker=marker_to_message(marker_at(0)))))
    return push_pb2.SubscriberMessage(frames=said).SerializeToString()


def _listen(module: ModuleType, data: bytes) -> object:
    """The publisher's side: what is parked goes to the store, and its rows out with the next assignment."""
    session = module.PushSession(_HELLO)
    session.schemas((USERS,))
    list(session.receive(push_pb2.SubscriberMessage(frames=[_Frame.FromString(_WELCOME)]).SerializeToString()))
    verify = VerifyMode.REPAIR
    flow, _ = session.assign("app", "log", _EPOCH, marker_at(0), None, 0.0, park=True, generation=1, verify=verify)
    session.chunk_end(flow, _CHUNK, narrowed=False, rows=_SENT)
    session.scan_end(flow, _CHUNK.table, 1, _SENT)
    owner = PublisherFlow("app", "log", Filter.parse(None), marker_at(0), marker_at(0).order)
    verifications = Verifications()
    verifications.begin(owner, 1)
    seen: list[object] = []
    for event in session.receive(data):
        seen.append(type(event).__name__)
        if isinstance(event, module.Verified):
            verifications.add(owner, event.found)
            verifications.log_end(owner, event.found.table)
            if event.confirm:
                seen.append(verifications.take_extra(owner, event.found.table))
        if isinstance(event, module.ParkWanted):
            rows = parked_rows([open_letter(event.arrived, "app/log")[0]]).items()
            session.assign("app", "log", _EPOCH + 1, marker_at(0), None, 0.0, park=True, parked=rows)
    return seen


def _range_end(rng: random.Random) -> push_pb2.PublisherFrame:
    """The end of a range, mostly one that fits its schema."""
    rows = [update_pb2.RowKey(values=[update_pb2.Value(int=rng.randrange(20))]) for _ in range(rng.randrange(4))]
    end = push_pb2.ChunkEnd(schema=_KEY.id, rows=rng.randrange(9), narrowed=rng.random() < 0.3)
    if rng.random() < 0.4:
        end.alone.extend(rows)
    else:
        end.portable = rng.random() < 0.8
        getattr(end, "except").extend(rows)
        if len(rows) > 1:
            low, high = sorted(rows[:2], key=lambda row: row.values[0].int)
            end.after.CopyFrom(low)
            high.values[0].int += 1
            end.until.CopyFrom(high)
    return frames.chunk_end(1, _EPOCH, end)


def _offers(rng: random.Random) -> bytes:
    """What a publisher says of a flow some rows of which are parked."""
    letters = [letter(number, rng.randrange(1, 9))[0] for number in rng.sample(range(1, 99), rng.randrange(1, 4))]
    rows = list(parked_rows(letters).items())
    skip = [f"s:{number}:0" for number in range(rng.randrange(3))]
    said = rng.choices((_range_end(rng), frames.scan_end(1, _EPOCH, "users", 1, 5)), k=2)
    said.append(frames.assign(1, _EPOCH + 1, "app", "log", marker_at(0), skip=skip, park=True, parked=rows))
    said += [frames.parked(1, _EPOCH + 1, told.id, rng.choice(("", "it is full"))) for told in letters]
    return push_pb2.PublisherMessage(frames=said).SerializeToString()


def _follow(module: ModuleType, data: bytes) -> object:
    """The subscriber's side: what came with the assignment decides over the next update."""
    session = module.Session(Admission("app", "sub"), max_frame_bytes=1 << 20, max_body_bytes=1 << 20, now=0.0)
    session.receive(_OPENED, 0.0)
    session.accept(1, 1 << 20, None)
    seen: list[object] = []
    for event in session.receive(data, 0.0):
        seen.append(type(event).__name__)
        if isinstance(event, module.RangeArrived):
            end = push_pb2.ChunkEnd.FromString(event.frame)
            seen.append(key_range(end, event.schema, shard="log", epoch=_EPOCH, generation=1, parked=[]))
        if isinstance(event, module.Assigned):
            gate = Gate(event.skip, event.parked)
            seen.append(gate.verdict(_UPDATE).name)
    if session.closed:
        raise ProtocolError(str(seen))
    return seen


TARGETS = [
    Target("session.publisher", "wormhole.push.session", _listen, _answers, (ProtocolError,)),
    Target("session.subscriber", "subscriber_sdk.stream.session", _follow, _offers, (ProtocolError,)),
]
