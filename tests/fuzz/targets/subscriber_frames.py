"""Every frame of a subscriber, in any order and with any values: events, or one ProtocolError that closes its
stream."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from subscriber_sdk.testing import marker_at
from tests.fuzz.mutate import mutate
from tests.fuzz.target import Target
from tests.support.letters import USERS, letter
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker
from wormhole.ports.dead_letters import parked_rows, place_to_message
from wormhole.push.parking import open_letter
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import push_pb2

_Frame = push_pb2.SubscriberFrame
_HELLO = push_pb2.Hello(
    min_version=3, max_version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20, heartbeat_ms=3000
)
_EPOCH = 7
_OFFERED: tuple[Datamarker, ...] = (marker_at(3), marker_at(5))
_NUMBERS = (0, 1, 2, 6, 7, 8, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_REALS = (0.0, -0.0, -1.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "\0", "\x1b[2J", "s:1:0", "é" * 100, "x" * 5000, "\u202e")
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), 1 << 31),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), 1 << 63),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1 << 32),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1 << 64),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), 1 << 31),
}


def _processed(rng: random.Random) -> push_pb2.Processed:
    return push_pb2.Processed(
        window=rng.randrange(3_000_000), updates=rng.randrange(99), set_aside=rng.randrange(9), in_vain=rng.randrange(9)
    )


def _one(rng: random.Random, flow: int) -> list[_Frame]:
    at: dict[str, Any] = {"flow": flow, "epoch": _EPOCH}
    counted = [_processed(rng) for _ in range(rng.randrange(3))]
    marker = marker_to_message(rng.choice(_OFFERED))
    match rng.randrange(8):
        case 0:
            return [_Frame(progress=push_pb2.Progress(**at, processed=counted))]
        case 1:
            return [_Frame(heartbeat=push_pb2.Heartbeat(number=rng.randrange(9)))]
        case 2:
            return [_Frame(released=push_pb2.Released(**at, marker=marker, life=5, processed=counted))]
        case 3:
            known = rng.choice(push_pb2.Failed.Reason.keys()[1:])
            failed = push_pb2.Failed(**at, reason=known, update_id="s:1:0", message="boom", held_epoch=9)
            return [_Frame(failed=failed)]
        case 4:
            why = rng.choice(push_pb2.Goodbye.Reason.keys())
            return [_Frame(goodbye=push_pb2.Goodbye(reason=why, message="bye", hint="nothing"))]
        case 5:
            told, parcel = letter(rng.randrange(1, 99), rng.randrange(1, 9))
            half = len(parcel.body) // 2
            last = push_pb2.Park(**at, update_id=told.id, body=parcel.body[half:], schema=parcel.schema, error="boom")
            last.place.CopyFrom(place_to_message(told.place))
            first = push_pb2.Park(**at, update_id=told.id, body=parcel.body[:half], more=True)
            return [_Frame(park=first), _Frame(park=last)]
        case 6:
            handler = push_pb2.HandlerReport(updates=rng.randrange(9), busy_s=rng.random(), slowest_table="users")
            return [_Frame(report=push_pb2.Report(**at, handler=handler))]
        case _:
            return [_Frame(loss_decision=push_pb2.LossDecision(**at, proceed=rng.random() < 0.5))] if flow == 2 else []


def _make(rng: random.Random) -> bytes:
    frames: list[_Frame] = []
    for flow in rng.sample((1, 2), rng.randrange(1, 3)):
        said = _one(rng, flow)
        if not any(frame.HasField("loss_decision") for frame in said):
            accepted = push_pb2.Accepted(flow=flow, epoch=_EPOCH, credit=1 << 20, life=5, epochs=[3, 4])
            frames.append(_Frame(accepted=accepted))
        frames += said
    return push_pb2.SubscriberMessage(frames=frames).SerializeToString()


def _break(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Fields set to what nobody expects, frames left out, repeated and swapped; sometimes bytes."""
    if rng.random() < 0.3:
        return mutate(rng, data, other)
    frames = list(push_pb2.SubscriberMessage.FromString(data).frames)
    frames += push_pb2.SubscriberMessage.FromString(other).frames
    rng.shuffle(frames)
    del frames[rng.randrange(1, len(frames) + 1) :]
    message = push_pb2.SubscriberMessage(frames=frames)
    for frame in rng.choices(message.frames, k=rng.choice((1, 1, 2, 4))):
        kind = frame.WhichOneof("kind")
        if kind is not None:
            _set(rng, getattr(frame, kind))
    return message.SerializeToString()


def _set(rng: random.Random, message: Message) -> None:
    field: Any = rng.choice(message.DESCRIPTOR.fields)
    if field.message_type is not None:
        if not field.is_repeated:
            _set(rng, getattr(message, field.name))
            return
        for _ in range(rng.choice((0, 1, 50))):
            _set(rng, getattr(message, field.name).add())
        return
    if field.is_repeated:
        getattr(message, field.name).extend(_value(rng, field) for _ in range(rng.choice((0, 1, 50))))
        return
    setattr(message, field.name, _value(rng, field))


def _value(rng: random.Random, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind in _INTEGERS:
        least, behind = _INTEGERS[kind]
        return rng.choice([number for number in (*_NUMBERS, -1, least) if least <= number < behind])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return rng.choice(_REALS)
    return rng.choice(_TEXTS) if field.type == FieldDescriptor.TYPE_STRING else rng.randbytes(rng.choice((0, 3, 300)))


def _listen(module: ModuleType, data: bytes) -> object:
    """Two open flows, of which one was told a data loss; what is parked goes out with the next assignment."""
    session = module.PushSession(_HELLO)
    session.schemas((USERS,))
    welcome = push_pb2.Welcome(version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20)
    list(session.receive(push_pb2.SubscriberMessage(frames=[_Frame(welcome=welcome)]).SerializeToString()))
    for shard in ("log", "log.2"):
        flow, _ = session.assign("app", shard, _EPOCH, marker_at(0), None, 0.0, park=True)
        for marker in _OFFERED:
            session.datamarker(flow, marker, 0.0)
    try:
        deciding = push_pb2.SubscriberMessage.FromString(data)
    except DecodeError:
        deciding = push_pb2.SubscriberMessage()
    if any(frame.HasField("loss_decision") for frame in deciding.frames):
        session.flows[2].phase = module.FlowPhase.DECIDING
    seen: list[object] = []
    for event in session.receive(data):
        seen.append(type(event).__name__)
        if isinstance(event, module.ParkWanted):
            rows = parked_rows([open_letter(event.arrived, "app/log")[0]]).items()
            session.assign("app", "log", _EPOCH + 1, marker_at(0), None, 0.0, park=True, parked=rows)
    return seen


TARGETS = [Target("session.frames", "wormhole.push.session", _listen, _make, (ProtocolError,), mutate=_break)]
