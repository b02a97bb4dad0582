"""The order of records in a stream that forgets ids, whatever ends the processes that publish."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sinks.nats.connection import Connected, Message, Servers, TooLarge
from sinks.nats.settings import NatsSettings
from sinks.nats.writer import NatsWriter
from sinks.records import Record, RecordRefused
from subscriber_sdk import Datamarker, NoticeKind, ShardNotice
from subscriber_sdk.testing import marker_at

SETTINGS = NatsSettings(url="nats://a")


class DiesHere(Exception):  # noqa: N818 - no error of the product
    """The process ends."""


@dataclass
class Stream:
    """A stream, and a connection to it. ``known``: the number of each message whose id it has not forgotten.
    ``lives``: how many messages are stored before the publisher dies, with the next one stored or not.
    """

    atomic: bool = True
    largest: int = 1 << 20
    stored: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    refuses: set[str] = field(default_factory=set)
    lives: int = 1 << 30

    @property
    def info(self) -> Any:
        return SimpleNamespace(config=SimpleNamespace(allow_atomic=self.atomic, max_msg_size=-1))

    async def connected(self) -> Connected:
        return cast("Connected", self)

    async def look(self) -> Any:
        return SimpleNamespace(state=SimpleNamespace(last_seq=len(self.stored)))

    async def publish(self, message: Message) -> Any:
        self.asked += 1
        if _name(message.id) in self.refuses:
            raise TooLarge
        duplicate = message.id in self.known
        if not duplicate:
            self._store([message])
        return SimpleNamespace(seq=self.known[message.id], duplicate=duplicate)

    async def publish_together(self, messages: Sequence[Message]) -> int | None:
        self.asked += 1
        if any(message.id in self.known or _name(message.id) in self.refuses for message in messages):
            return None
        self._store(messages)
        return len(self.stored)

    def _store(self, messages: Sequence[Message]) -> None:
        self.lives -= len(messages)
        if self.lives < -len(messages):
            raise DiesHere
        for message in messages:
            self.stored.append(_name(message.id))
            self.known[message.id] = len(self.stored)
        if self.lives < 0:
            raise DiesHere

    def forget(self, until: int) -> None:
        """Forget the ids of the messages with numbers up to ``until``."""
        self.known = {id_: number for id_, number in self.known.items() if number > until}


def _name(id_: str) -> str:
    return id_.split("/")[4]


def records(*names: int) -> list[Record]:
    return [Record(str(name), str(name), "shop.orders", b"[1]", b"{}") for name in names]


def process(stream: Stream) -> NatsWriter:
    return NatsWriter("changes", SETTINGS, cast("Servers", stream))


async def begun(sink: NatsWriter, epoch: int, move: int = 0) -> NatsWriter:
    notice = ShardNotice(NoticeKind.ASSIGNED, "db1", epoch, marker_at(0), move=move, application="app", dataset="shop")
    await sink.assigned(notice)
    return sink


def marker(number: int) -> Datamarker:
    return Datamarker(**{**vars_of(marker_at(number)), "shard": "db1"})


def vars_of(value: Datamarker) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


async def test_what_this_process_knows_is_asked_again_if_another_one_had_the_shard() -> None:
    """The other one has stored the first record again, behind the second."""
    stream = Stream()
    sink = await begun(process(stream), 1)
    await sink.write("db1", records(1, 2))
    stream.forget(1)
    other = await begun(process(stream), 2)
    await other.write("db1", records(1))
    await begun(sink, 3)
    await sink.write("db1", records(1, 2))
    assert stream.stored == ["1", "2", "1", "2"]


async def test_what_this_process_knows_is_stored_again_behind_a_record_that_was_forgotten() -> None:
    """An acknowledgement was lost, so that what was before the datamarker comes again too."""
    stream = Stream()
    sink = await begun(process(stream), 1)
    await sink.write("db1", records(1))
    await sink.marked(marker(1))
    await sink.write("db1", records(2))
    stream.forget(1)
    await begun(sink, 2)
    await sink.write("db1", records(1))
    await sink.write("db1", records(2))
    assert stream.stored == ["1", "2", "1", "2"]


async def test_what_was_confirmed_is_before_the_records_of_the_next_epoch() -> None:
    """The connection was lost. The stream knows the second record from an earlier process, before the first."""
    stream = Stream(stored=["2"], known={"app/shop/db1/0/2": 1})
    sink = await begun(process(stream), 1)
    await sink.write("db1", records(1))
    await begun(sink, 2)
    await sink.write("db1", records(2))
    assert stream.stored == ["2", "1", "2"]


@pytest.mark.parametrize(("marks", "epoch"), [(True, 2), (False, 3)], ids=["marked", "another process"])
async def test_what_comes_again_from_an_earlier_place_is_dropped(marks: bool, epoch: int) -> None:
    """The acknowledgement of a datamarker was lost, or another process had the shard."""
    stream = Stream()
    sink = await begun(process(stream), 1)
    await sink.write("db1", records(1, 2))
    if marks:
        await sink.marked(marker(2))
    await begun(sink, epoch)
    await sink.write("db1", records(1, 2))
    assert stream.stored == ["1", "2"]


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_call_has_as_many_records_as_the_server_takes(atomic: bool) -> None:
    sink = await begun(process(Stream(atomic)), 1)
    assert sink.most == (1000 if atomic else 100)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_record_behind_one_that_is_left_out_is_stored_behind_it(kept: bool) -> None:
    """Another process stored the second record before this one stored the first one."""
    stream = Stream()
    await (await begun(process(stream), 1)).write("db1", records(1, 2))
    stream.forget(1)
    sink = await begun(process(stream), 2)
    await sink.write("db1", records(1))
    await sink.rolled_back(marker(0), kept=kept)
    await sink.write("db1", records(2) if kept else records(1, 2))
    assert stream.stored == ["1", "2", "1", "2"]


async def test_a_move_of_the_datamarker_publishes_again() -> None:
    stream = Stream()
    sink = await begun(process(stream), 1)
    await sink.write("db1", records(1, 2))
    await begun(sink, 2, move=2)
    await sink.write("db1", records(1, 2))
    assert stream.stored == ["1", "2", "1", "2"]


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_refused_record_is_named_and_those_behind_it_are_not_stored(atomic: bool) -> None:
    stream = Stream(atomic, refuses={"2"})
    sink = await begun(process(stream), 1)
    with pytest.raises(RecordRefused) as refused:
        await sink.write("db1", records(1, 2, 3))
    assert (refused.value.update_id, stream.stored) == ("2", ["1"])
    await sink.rolled_back(marker(0), kept=False)
    await sink.write("db1", records(1, 3))
    assert stream.stored == ["1", "3"]


async def test_a_tombstone_is_not_published() -> None:
    stream = Stream()
    sink = await begun(process(stream), 1)
    await sink.write("db1", [records(1)[0]._replace(value=None), *records(2)])
    assert stream.stored == ["2"]


async def test_the_last_message_of_each_record_is_in_order_whatever_dies_and_is_forgotten() -> None:
    """Random batches, deaths in the middle of them, other processes, and a stream that forgets the oldest ids."""
    repeated = 0
    for chance in map(random.Random, range(300)):
        stream = Stream(atomic=chance.random() < 0.5)
        names, acknowledged, epoch = list(range(1, 13)), 0, 0
        sinks = [process(stream), process(stream)]
        while acknowledged < len(names):
            epoch += 1
            at = chance.randrange(len(sinks))
            sink = await begun(sinks[at], epoch)
            stream.lives = chance.randrange(20) if epoch < 8 else 1 << 30
            if chance.random() < 0.5:
                stream.forget(chance.randint(0, len(stream.stored)))
            try:
                place = acknowledged
                while place < len(names):
                    until = min(len(names), place + chance.randint(1, 6))
                    await sink.write("db1", records(*names[place:until]))
                    place = until
                    if chance.random() < 0.3:
                        await sink.marked(marker(place))
                        acknowledged = place
                        # The window is over for what was stored before the last message.
                        stream.forget(len(stream.stored) - 1)
                acknowledged = place
            except DiesHere:
                sinks[at] = process(stream)
        last = {name: number for number, name in enumerate(stream.stored)}
        assert sorted(last, key=last.__getitem__) == [str(name) for name in names]
        repeated += len(stream.stored) - len(last)
    assert repeated > 0
