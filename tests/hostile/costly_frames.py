"""Frames that the protocol permits and that cost much: of each kind the ones at its bounds, drawn by a seed.

What they cost is charged to their subscriber, so only that subscriber gets slower.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import place_of, place_to_message
from wormhole.wire.body import parse_body
from wormhole.wire.bounds import MOST_NAME, MOST_WINDOWS
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["KINDS", "costly"]

Frame = push_pb2.SubscriberFrame
Flows = dict[str, push_pb2.Assign]

_PIECE = 3_000_000
_WIDEST = 30_000  # values of an update whose table is as wide


def _at(assign: push_pb2.Assign) -> dict[str, Any]:
    return {"flow": assign.flow, "epoch": assign.epoch}


def _windows(rng: random.Random) -> list[push_pb2.Processed]:
    first = rng.randrange(2_000_000, 3_000_000)
    return [push_pb2.Processed(window=first + i, updates=1) for i in range(MOST_WINDOWS)]


def progress(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """As many windows as one frame may report."""
    return [Frame(progress=push_pb2.Progress(**_at(assign), processed=_windows(rng)))]


def stale(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """Many small frames of an epoch that is over."""
    return [Frame(ack=push_pb2.Ack(flow=assign.flow, epoch=0))] * rng.randrange(1000, 20_000)


def alone(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """The smallest frame, in a message of its own."""
    return [Frame(ack=push_pb2.Ack(flow=assign.flow, epoch=0))]


def reports(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """The longest texts that are kept, and longer ones."""
    text = "x" * rng.choice((MOST_NAME, 200_000))
    handler = push_pb2.HandlerReport(updates=1, slowest_table=text, running_update=text)
    return [Frame(report=push_pb2.Report(**_at(assign), handler=handler))] * rng.randrange(1, 8)


def pieces(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """A piece of an update that is given up before it is finished: giving it up drops what came."""
    piece = push_pb2.Park(**_at(assign), update_id=sent.id, body=bytes(_PIECE), more=True)
    return [Frame(park=piece)]


def letters(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """An update that was sent, with the most values that it may have, parked again and again."""
    schema, body = sent.encoded()
    message = update_pb2.BatchBody.FromString(body)
    update = update_pb2.Update.FromString(message.updates[0])
    update.after.extend([update_pb2.Value()] * rng.randrange(_WIDEST))
    message.updates[0] = update.SerializeToString()
    return [_park(assign, sent, schema, message.SerializeToString())]


def small_letters(rng: random.Random, assign: push_pb2.Assign, sent: Update) -> list[push_pb2.SubscriberFrame]:
    """The update as it was sent, many times in one message: each is answered."""
    schema, body = sent.encoded()
    return [_park(assign, sent, schema, body)] * rng.randrange(1, 500)


def _park(assign: push_pb2.Assign, sent: Update, schema: Schema, body: bytes) -> push_pb2.SubscriberFrame:
    place = place_to_message(place_of(sent))
    park = push_pb2.Park(
        **_at(assign), update_id=sent.id, body=body, schema=schema.canonical, place=place, error="x" * 1000
    )
    return Frame(park=park)


Kind = Callable[[random.Random, push_pb2.Assign, Update], list[push_pb2.SubscriberFrame]]
KINDS: dict[str, Kind] = {
    kind.__name__: kind for kind in (progress, stale, alone, reports, pieces, letters, small_letters)
}


def costly(
    seed: int, kinds: list[str], flows: Flows, batches: dict[str, tuple[Schema, bytes]]
) -> Iterator[list[push_pb2.SubscriberFrame]]:
    """The frames of one message after the other. ``flows``: those that are open; ``batches``: by shard, the body of one
    that was sent, with the schema of its updates.
    """
    rng = random.Random(seed)
    given_up = 0
    for kind in itertools.cycle(kinds):
        shard = rng.choice(sorted(batches.keys() & flows.keys()))
        schema, body = batches[shard]
        sent = Batch(parse_body(body), shard, 1, False, lambda _, schema=schema: schema).updates()[0]  # type: ignore[misc]
        yield KINDS[kind](rng, flows[shard], sent)
        given_up += kind == "pieces"
        if given_up == 8:  # before memory is full, which would cost the connection
            given_up = 0
            failed = push_pb2.Failed(**_at(flows[shard]), reason=push_pb2.Failed.RESEND)
            yield [Frame(failed=failed)]
            del flows[shard]
