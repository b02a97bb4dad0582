"""The sink of Kafka and a broker: what readers of committed records get, whatever ends in between."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from sinks.kafka import markers
from sinks.kafka.kind import KIND
from sinks.kafka.names import partition_of
from sinks.kafka.settings import KafkaSettings
from sinks.kafka.shard import ShardProducer
from sinks.kafka.writer import KafkaWriter
from sinks.port import Sink
from sinks.records import RecordRefused
from subscriber_sdk import Datamarker, EpochRefused, HandlerFailed, NoticeKind, RetryPolicy, ShardNotice
from subscriber_sdk.testing import Change, Kit, KitFlow, body_of, frames, marker_at, update
from tests.support.dialled import Dialler, dialled
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.kafka_server import KafkaRecord, KafkaServer
from tests.support.ports import free_port
from tests.support.sink_process import running_sink, sink_config
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.model.findings import Severity
from wormhole.model.table_definition import TableDefinition
from wormhole.model.values import Op
from wormhole.wire.markers import marker_from_message

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

RETRY = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.02)


class Topics:
    """Topics of one test. ``name`` begins their names."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.name = f"t{uuid.uuid4().hex}"
        self.markers = f"{self.name}-markers"
        server.create(self.markers, cleanup_policy="compact")

    def make(self, table: str, partitions: int = 3, **settings: str) -> str:
        topic = f"{self.name}.{table}"
        self.server.create(topic, partitions, **settings)
        return topic

    def settings(self, **given: Any) -> dict[str, Any]:
        return {
            "url": f"kafka://{self.server.bootstrap}",
            "topic": f"{self.name}.{{table}}",
            "marker_topic": self.markers,
            "timeout": "5s",
            **given,
        }

    def sink(self, **given: Any) -> Sink:
        return KIND.open("lines", KafkaSettings.model_validate(self.settings(**given)))

    def attached(self, kit: Kit, *, shard: str = "shop", parks: bool = False, **given: Any) -> KitFlow:
        subscriber = self.sink(**given).subscriber
        return kit.attach(subscriber, shard=shard, on_failure="park" if parks else "halt", retry=RETRY)

    def records(self, table: str = "orders") -> list[KafkaRecord]:
        return self.server.records(f"{self.name}.{table}")

    def ids(self, table: str = "orders") -> list[str]:
        return [json.loads(record.value or b"")["id"] for record in self.records(table)]


@pytest.fixture
def topics(kafka_server: KafkaServer) -> Topics:
    return Topics(kafka_server)


def dies(_: object) -> None:
    """The publisher's death before it deleted a dead letter."""
    raise ConnectionResetError


def row(key: int, text: str = "", table: str = "orders") -> Change:
    return update(table, key=key, after={"text": text})


def refusal(failed: pytest.ExceptionInfo[HandlerFailed]) -> BaseException | None:
    return failed.value.__cause__


def test_records_of_a_key_are_in_one_partition_in_order(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 5)
    flow = topics.attached(wormhole_kit)
    for text in "abc":
        flow.commit(*(row(key, text) for key in range(20)))
    found: dict[bytes, list[tuple[int, str]]] = {}
    for record in topics.records():
        after = json.loads(record.value or b"")["after"]
        found.setdefault(record.key or b"", []).append((record.partition, after["text"]))
    for key in range(20):
        at = partition_of(b"[%d]" % key, 5)
        assert found[b"[%d]" % key] == [(at, "a"), (at, "b"), (at, "c")]
    assert len({place for records in found.values() for place, _ in records}) == 5


def test_a_truncate_is_in_every_partition_and_a_changed_key_in_both(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 3)
    flow = topics.attached(wormhole_kit)
    flow.commit(update("orders", key=(), op=Op.TRUNCATE))
    assert sorted(record[:4:2] for record in topics.records()) == [(0, b""), (1, b""), (2, b"")]
    flow.commit(update("orders", key=7, old_key=1, before={"text": "a"}, after={"text": "a"}))
    moved = [record for record in topics.records() if record.key]
    assert {record.key: record.partition for record in moved} == {key: partition_of(key, 3) for key in (b"[1]", b"[7]")}
    assert len({record.value for record in moved}) == 1
    flow.commit(update("orders", key=(), after={"text": "without a key"}))
    assert [record.partition for record in topics.records() if record.key is None] == [0]


def test_nothing_of_a_transaction_is_published_before_its_datamarker(wormhole_kit: Kit, topics: Topics) -> None:
    """A callback fails after its records were written: they are aborted, and come again once."""
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    marked = ShardProducer.marked
    seen = []

    def fails(producer: ShardProducer, marker: Any) -> None:
        seen.append((topics.ids(), len(topics.server.records(f"{topics.name}.orders", "read_uncommitted"))))
        if len(seen) == 1:
            raise ValueError("once")
        marked(producer, marker)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ShardProducer, "marked", fails)
        flow.commit(row(1), row(2))
    assert seen == [([], 2), ([], 4)]
    assert topics.ids() == ["test:1:0", "test:1:1"]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._STATE], ids=["unanswered", "broken"])
@pytest.mark.parametrize("done", [True, False], ids=["committed", "not committed"])
def test_a_commit_of_unknown_outcome_is_decided_by_the_stored_datamarker(
    wormhole_kit: Kit, topics: Topics, monkeypatch: pytest.MonkeyPatch, code: int, done: bool
) -> None:
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    flow.commit(row(1))
    until_done = ShardProducer._until_done
    lost: list[Any] = []

    def loses(producer: ShardProducer, call: Any) -> None:
        if call.__name__ != "commit_transaction" or lost:
            until_done(producer, call)
            return
        lost.append(call)
        if done:
            until_done(producer, call)
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(ShardProducer, "_until_done", loses)
    flow.commit(row(2), row(3))
    flow.commit(row(4))
    assert lost
    assert flow.datamarker == flow.end
    assert topics.ids() == ["test:1:0", "test:2:0", "test:2:1", "test:3:0"]


def test_a_commit_of_which_the_flow_was_not_informed_is_not_repeated(
    wormhole_kit: Kit, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its callback was cancelled, and the thread went on."""
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    marked = KafkaWriter.marked
    late: list[Any] = []

    async def uninformed(writer: KafkaWriter, marker: Datamarker) -> None:
        await marked(writer, marker)
        if not late:
            late.append(marker)
            raise TimeoutError

    monkeypatch.setattr(KafkaWriter, "marked", uninformed)
    flow.commit(row(1))
    flow.commit(row(2))
    assert late
    assert topics.ids() == ["test:1:0", "test:2:0"]


def test_two_sinks_of_one_topic_continue_where_each_of_them_was(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 1)
    one, other = (
        wormhole_kit.attach(topics.sink().subscriber, application=name, retry=RETRY) for name in ("one", "other")
    )
    one.commit(row(1))
    other.commit(row(2))
    other.commit(row(3))
    one.crash_and_redeliver(1, subscriber=topics.sink().subscriber)
    other.crash_and_redeliver(1, subscriber=topics.sink().subscriber)
    one.commit(row(4))
    assert [record.key for record in topics.records()] == [b"[1]", b"[2]", b"[3]", b"[4]"]
    assert topics.ids() == ["test:1:0", "test:1:0", "test:2:0", "test:2:0"]


def test_a_replaced_process_reports_that_although_the_client_loses_the_reason(
    wormhole_kit: Kit, topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    flow.commit(row(1))
    replaced = flow.hand_over(topics.sink().subscriber)
    flow.commit(row(2))
    flush = ShardProducer._flush

    def loses(producer: ShardProducer, records: Any) -> None:
        try:
            flush(producer, records)
        except KafkaException:
            raise SystemError from None

    monkeypatch.setattr(ShardProducer, "_flush", loses)
    replaced.commit(row(2))
    assert replaced.fenced
    assert sum("another process has taken the shard over" in record.getMessage() for record in caplog.records) == 1
    assert topics.ids() == ["test:1:0", "test:2:0"]


def test_a_process_without_a_connection_that_was_replaced_writes_nothing(wormhole_kit: Kit, topics: Topics) -> None:
    """Its next producer fences the process in its place, and finds that process's datamarker."""
    topics.make("orders", 1)
    sink: Any = topics.sink()
    flow = wormhole_kit.attach(sink.subscriber, retry=RETRY)
    flow.commit(row(1))
    sink._writer._shards["shop"].producer.rest()
    replaced = flow.hand_over(topics.sink().subscriber)
    flow.commit(row(2))
    replaced.commit(row(2))
    assert replaced.fenced
    flow.commit(row(3))
    assert topics.ids() == ["test:1:0", "test:2:0", "test:3:0"]


async def test_an_epoch_is_refused_that_is_older_than_one_without_records(kafka_server: KafkaServer) -> None:
    topics = await asyncio.to_thread(Topics, kafka_server)

    def assigned(epoch: int) -> ShardNotice:
        return ShardNotice(NoticeKind.ASSIGNED, "shop", epoch, marker_at(0), application="lines")

    first, second = topics.sink(), topics.sink()
    await cast(Any, first.subscriber).on_shard_notice(assigned(5))
    with pytest.raises(EpochRefused) as refused:
        await cast(Any, second.subscriber).on_shard_notice(assigned(4))
    assert refused.value.held_epoch == 5
    await first.close()
    await second.close()


def test_records_that_are_too_large_are_parked_and_no_others(wormhole_kit: Kit, topics: Topics) -> None:
    """Several records that are sent together may be too large only together."""
    topics.make("orders", 1, max_message_bytes="20000")
    flow = topics.attached(wormhole_kit, parks=True)
    flow.commit(*(row(key, "x" * 3000) for key in range(20)))
    assert topics.ids() == [f"test:1:{index}" for index in range(20)]
    flow.commit(row(1), row(2, "x" * 30_000), row(3), row(2))
    assert flow.parked == ["test:2:1", "test:2:3"]
    assert topics.ids()[20:] == ["test:2:0", "test:2:2"]
    flow.discard()
    flow.commit(row(4))
    assert topics.ids()[22:] == ["test:3:0"]


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 1, cleanup_policy="compact")
    flow = topics.attached(wormhole_kit)
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(row(1), update("orders", key=(), after={"text": "a"}))
    assert isinstance(cause := refusal(failed), RecordRefused)
    assert "without a key" in str(cause)


def test_a_dead_letter_whose_records_are_stored_is_not_written_again(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 1, max_message_bytes="20000")
    flow = topics.attached(wormhole_kit, parks=True)
    flow.commit(row(1), row(2, "x" * 30_000))
    topics.server.alter(f"{topics.name}.orders", "max.message.bytes", "100000")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(flow._letters, "delivered", dies)
        with pytest.raises(ConnectionResetError):
            flow.retry()
    assert topics.ids() == ["test:1:0", "test:1:1"]
    flow.crash_and_redeliver(0, subscriber=topics.sink().subscriber)
    flow.commit(row(3))
    assert (flow.parked, topics.ids()) == ([], ["test:1:0", "test:1:1", "test:2:0"])


def test_a_missing_topic_is_waited_for(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    flow.commit(row(1))
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(row(2), row(1, table="lines"))
    assert isinstance(cause := refusal(failed), TargetUnavailable)
    assert f"--create --topic {topics.name}.lines" in str(cause)
    assert topics.ids() == ["test:1:0"]
    topics.make("lines", 1)
    flow.assign()
    assert topics.ids() == ["test:1:0", "test:2:0"]
    assert topics.ids("lines") == ["test:2:1"]


def test_a_changed_number_of_partitions_halts_the_flow_until_it_is_accepted(wormhole_kit: Kit, topics: Topics) -> None:
    topic = topics.make("orders", 2)
    flow = topics.attached(wormhole_kit)
    flow.commit(row(1))
    topics.server.grow(topic, 3)
    flow.revoke()
    flow.assign()
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(row(2))
    assert isinstance(cause := refusal(failed), TargetRefused)
    assert f"'{topic}' = 3" in str(cause)
    assert topics.ids() == ["test:1:0"]
    flow.crash_and_redeliver(0, subscriber=topics.sink(partitions={topic: 3}).subscriber)
    flow.crash_and_redeliver(0, subscriber=topics.sink().subscriber)
    flow.commit(row(3))
    assert sorted(topics.ids()) == ["test:1:0", "test:2:0", "test:3:0"]


def test_an_emptied_topic_of_datamarkers_halts_the_flow(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    flow.commit(row(1))
    other = Topics(topics.server)
    with pytest.raises(HandlerFailed) as failed:
        flow.crash_and_redeliver(0, subscriber=topics.sink(marker_topic=other.markers).subscriber)
    assert isinstance(cause := refusal(failed), TargetRefused)
    assert cause.code == "target-empty"
    assert other.markers in str(cause)


def test_an_older_copy_of_the_broker_is_filled_from_its_datamarker(wormhole_kit: Kit, tmp_path: Path) -> None:
    with KafkaServer() as server:
        topics = Topics(server)
        topics.make("orders", 1)
        flow = topics.attached(wormhole_kit)
        flow.commit(row(1))
        server.stop()
        shutil.copytree(server.data, tmp_path / "older")
        server.start()
        flow.commit(row(2), row(3))
        server.kill()
        shutil.rmtree(server.data)
        shutil.copytree(tmp_path / "older", server.data)
        server.start()
        flow.commit(row(4))
        assert topics.ids() == ["test:1:0", "test:2:0", "test:2:1", "test:3:0"]


def test_an_open_transaction_of_another_shard_is_waited_for(
    wormhole_kit: Kit, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides the datamarkers that were committed behind its first record. A command of the message ends it."""
    hidden: list[int] = []
    is_past, last_between = markers._is_past, markers._last_between

    def looks(message: Any, end: int) -> bool:
        if not (past := is_past(message, end)) and message.error() is not None:
            hidden.append(message.offset())
        return past

    def reads(reader: Any, begin: Any, end: int, key: bytes, left: Callable[[], float], brokers: str) -> bytes | None:
        """The time is over when the reader came to the open transaction, however long the connection took."""
        return last_between(reader, begin, end, key, lambda: 0.0 if hidden else left(), brokers)

    monkeypatch.setattr(markers, "_is_past", looks)
    monkeypatch.setattr(markers, "_last_between", reads)
    monkeypatch.setattr(markers, "_LOOK_S", PATIENCE_S)
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    other = Producer({"bootstrap.servers": topics.server.bootstrap, "transactional.id": topics.name, "log_level": 0})
    other.init_transactions()
    other.begin_transaction()
    other.produce(topics.markers, b"{}", b"other", 0)
    other.flush()
    flow.commit(row(1))
    with pytest.raises(HandlerFailed) as failed:
        flow.crash_and_redeliver(1, subscriber=topics.sink(timeout="60s").subscriber)
    cause = refusal(failed)
    assert isinstance(cause, TargetUnavailable)
    assert hidden
    (words,) = re.findall(r"`kafka-transactions\.sh ([^`]* abort [^`]*)`", cause.hint or "")
    tool = topics.server.program("org.apache.kafka.tools.TransactionsCommand")
    subprocess.run([*tool, *words.split()], check=True, stdout=subprocess.DEVNULL)
    monkeypatch.undo()
    flow.crash_and_redeliver(1, subscriber=topics.sink(timeout="60s").subscriber)
    flow.commit(row(2))
    assert topics.ids() == ["test:1:0", "test:2:0"]


def test_a_datamarker_is_found_behind_thousands_of_others(wormhole_kit: Kit, topics: Topics) -> None:
    topics.make("orders", 1)
    flow = topics.attached(wormhole_kit)
    flow.commit(row(1))
    other = Producer({"bootstrap.servers": topics.server.bootstrap})
    for number in range(6000):
        other.produce(topics.markers, b"{}", b"%d" % number, 0)
    other.flush()
    flow.crash_and_redeliver(1, subscriber=topics.sink().subscriber)
    flow.commit(row(2))
    assert topics.ids() == ["test:1:0", "test:2:0"]


async def test_an_examination_reports_what_would_lose_datamarkers(kafka_server: KafkaServer) -> None:
    topics = await asyncio.to_thread(Topics, kafka_server)
    good = await topics.sink().examine()
    assert [finding.severity for finding in good.findings] == [Severity.OK]
    await asyncio.to_thread(topics.server.alter, topics.markers, "cleanup.policy", "compact,delete")
    deleting = await topics.sink(transaction_timeout="1h").examine()
    assert [(finding.severity, finding.code) for finding in deleting.findings] == [
        (Severity.PROBLEM, "target-refused")
    ] * 2
    assert "--add-config cleanup.policy=compact" in deleting.findings[0].next_step
    assert "900s" in deleting.findings[1].next_step
    (missing,) = (await topics.sink(marker_topic=f"{topics.name}-missing").examine()).findings
    assert (missing.severity, missing.code) == (Severity.PROBLEM, "target-unavailable")
    assert f"--create --topic {topics.name}-missing" in missing.next_step


async def test_an_examination_reports_what_topics_of_tables_refuse(kafka_server: KafkaServer) -> None:
    topics = await asyncio.to_thread(Topics, kafka_server)

    def make() -> str:
        topics.make("small", max_message_bytes="20000")
        topics.make("log", cleanup_policy="compact,delete")
        return topics.make("grown", 3)

    grown = await asyncio.to_thread(make)
    keys = {"missing": ("id",), "small": ("id",), "log": (), "grown": ("id",), "x" * 250: ("id",)}
    tables = [TableDefinition(name, key, ()) for name, key in keys.items()]
    with_key = TableDefinition("log", ("id",), ())
    findings = await topics.sink(partitions={grown: 2}).compare("db1", tables)
    assert [(finding.severity, finding.code) for finding in findings] == [
        (Severity.PROBLEM, "target-unavailable"),
        (Severity.WARN, "record-refused"),
        (Severity.PROBLEM, "record-refused"),
        (Severity.PROBLEM, "target-refused"),
        (Severity.PROBLEM, "record-refused"),
    ]
    assert f"--create --topic {topics.name}.missing" in findings[0].next_step
    fine = await topics.sink().compare("db1", [with_key, tables[3]])
    assert [finding.severity for finding in fine] == [Severity.OK, Severity.OK]
    (one,) = await topics.sink(topic=topics.markers).compare("db1", [with_key, tables[3]])
    assert (one.severity, one.code) == (Severity.PROBLEM, "record-refused")


TRANSACTIONS = 160
AHEAD = 5  # a sink that has many waiting commits them together


class Process:
    """The sink as a process, and the publisher that connects to it."""

    def __init__(self, folder: Path, topics: Topics, name: str = "lines") -> None:
        self.listen = f"127.0.0.1:{free_port()}"
        lines = {
            "url": f"kafka://{topics.server.bootstrap}",
            "topic": f"{topics.name}.{{table}}",
            "marker_topic": topics.markers,
        }
        settings = "\n".join(f'{name} = "{value}"' for name, value in lines.items())
        self.config = sink_config(folder, name, self.listen, settings)
        self.epoch = 0
        self.acknowledged = marker_at(0)

    async def push(self, publisher: Dialler, last: int) -> None:
        """Push what follows the place that the sink returns until ``last``, and wait until all is acknowledged."""
        self.epoch += 1
        done = int(self.acknowledged.delivered)
        await publisher.send(
            frames.hello("lines", "one", heartbeat_ms=5000, dataset="shop"),
            frames.assign(1, self.epoch, "lines", "db1", self.acknowledged, acknowledged=done > 0),
        )
        accepted = (await publisher.next("accepted")).accepted
        if accepted.HasField("have"):
            self.acknowledged = marker_from_message(accepted.have)
        await publisher.send(frames.schema(row(0).schema))
        first = int(self.acknowledged.delivered) + 1
        for number in range(first, last + 1):
            body = body_of([row(number % 7, str(number)), row(number % 5, str(number))], number=number)
            await publisher.send(
                frames.batch(1, self.epoch, number - first + 1, body),
                frames.datamarker(1, self.epoch, marker_at(number)),
            )
            while int(self.acknowledged.delivered) < (number if number == last else number - AHEAD):
                self.acknowledged = marker_from_message((await publisher.next("ack")).ack.marker)


async def test_a_transaction_that_the_database_rolls_back_is_published_nowhere(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    """Its first piece is in the topic, where readers of uncommitted records find it."""
    topics = await asyncio.to_thread(Topics, kafka_server)
    topic = await asyncio.to_thread(topics.make, "orders", 1)
    sink = Process(tmp_path, topics)
    async with running_sink(sink.config), dialled(sink.listen, wait=True) as publisher:
        await publisher.send(
            frames.hello("lines", "one", heartbeat_ms=5000, dataset="shop"),
            frames.assign(1, 1, "lines", "db1", marker_at(0)),
        )
        await publisher.next("accepted")
        body = body_of([row(1), row(2)], number=1, ends=False)
        await publisher.send(frames.schema(row(0).schema), frames.batch(1, 1, 1, body, unfinished=True))
        await eventually(lambda: kafka_server.records(topic, "read_uncommitted"), "the first piece")
        await publisher.send(frames.revoke(1, 1, "the database rolled it back"))
        await publisher.next("released")
        await publisher.send(frames.assign(2, 2, "lines", "db1", marker_at(0)))
        await publisher.next("accepted")
        await publisher.send(
            frames.schema(row(0).schema),
            frames.batch(2, 2, 1, body_of([row(3)], number=2)),
            frames.datamarker(2, 2, marker_at(2)),
        )
        await publisher.next("ack")
    assert await asyncio.to_thread(topics.ids) == ["test:2:0"]


def one_row(number: int, epoch: int = 1, *, batch: int | None = None) -> Any:
    """A batch of the flow ``epoch`` with the transaction ``number``, which has one row."""
    body = body_of([row(number)], number=number)
    return frames.batch(epoch, epoch, number if batch is None else batch, body)


async def test_two_sinks_of_one_topic_have_open_transactions_at_a_time(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    topics = await asyncio.to_thread(Topics, kafka_server)
    topic = await asyncio.to_thread(topics.make, "orders", 1)
    folder = tmp_path / "other"
    folder.mkdir()
    one, other = Process(tmp_path, topics, "one"), Process(folder, topics, "other")
    async with (
        running_sink(one.config),
        running_sink(other.config),
        dialled(one.listen, wait=True) as first,
        dialled(other.listen, wait=True) as second,
    ):
        await first.open("one")
        await first.send(frames.schema(row(0).schema), one_row(1))
        await eventually(lambda: kafka_server.records(topic, "read_uncommitted"), "the record of the first")
        await second.open("other")
        await second.commit(1, row(2))
        await second.next("ack")
        await first.send(frames.datamarker(1, 1, marker_at(1)))
        await first.next("ack")
    records = await asyncio.to_thread(topics.records)
    assert [record.key for record in records] == [b"[1]", b"[2]"]


async def test_a_second_process_replaces_the_first_and_nothing_is_missing_or_twice(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    """It has a copy of the configuration, with another port, and its publisher a copy of the state."""
    topics = await asyncio.to_thread(Topics, kafka_server)
    topic = await asyncio.to_thread(topics.make, "orders", 1)
    folder, log = tmp_path / "copy", tmp_path / "log"
    folder.mkdir()
    older, newer = Process(tmp_path, topics), Process(folder, topics)

    async def opened(records: int) -> None:
        found = partial(kafka_server.records, topic, "read_uncommitted")
        await eventually(lambda: len(found()) == records, "an open transaction")

    async with running_sink(older.config, log=log), dialled(older.listen, wait=True) as first:
        await first.open("lines")
        await first.send(frames.schema(row(0).schema), one_row(1))
        await opened(1)
        async with running_sink(newer.config), dialled(newer.listen, wait=True) as second:
            await second.send(frames.hello("lines", "one", heartbeat_ms=5000))
            await second.next("welcome")
            await first.send(frames.datamarker(1, 1, marker_at(1)))  # the second one is assigned nothing
            await first.next("ack")
            await first.send(one_row(2))
            await opened(2)
            await second.send(frames.assign(1, 1, "lines", "s", marker_at(0)))
            assert marker_from_message((await second.next("accepted")).accepted.have) == marker_at(1)
            await second.send(frames.schema(row(0).schema), one_row(2, batch=1), frames.datamarker(1, 1, marker_at(2)))
            await second.next("ack")
            await first.send(frames.datamarker(1, 1, marker_at(2)))
            replaced = (await first.next("failed")).failed
            assert replaced.reason == replaced.RESEND
            assert "another process has taken the shard over" in replaced.message
            await first.send(frames.assign(2, 2, "lines", "s", marker_at(1), acknowledged=True))
            assert marker_from_message((await first.next("accepted")).accepted.have) == marker_at(2)
            await first.send(one_row(3, 2, batch=1), frames.datamarker(2, 2, marker_at(3)))
            await first.next("ack")
            await second.send(one_row(3, batch=2), frames.datamarker(1, 1, marker_at(3)))
            await second.next("failed")
            await second.send(frames.assign(2, 1, "lines", "s", marker_at(2), acknowledged=True))
            stale = (await second.next("failed")).failed
            assert (stale.reason, stale.held_epoch) == (stale.STALE_EPOCH, 2)
    assert await asyncio.to_thread(topics.ids) == ["test:1:0", "test:2:0", "test:3:0"]
    written = [json.loads(line) for line in log.read_text().splitlines()]
    (problem,) = (line["message"] for line in written if line["level"] != "info")
    assert "[target-unavailable]. Next: if this repeats, two processes have the shard" in problem


async def test_nothing_is_missing_or_twice_after_processes_were_killed(
    tmp_path: Path, kafka_server: KafkaServer
) -> None:
    topics = await asyncio.to_thread(Topics, kafka_server)
    await asyncio.to_thread(topics.make, "orders", 1)
    sink, chance = Process(tmp_path, topics), random.Random(7)
    kills = 0
    while int(sink.acknowledged.delivered) < TRANSACTIONS:
        async with running_sink(sink.config) as process, dialled(sink.listen, wait=True) as publisher:
            goal = int(sink.acknowledged.delivered) + chance.randrange(10, 40)
            pushing = asyncio.create_task(sink.push(publisher, min(goal + AHEAD, TRANSACTIONS)))
            while not pushing.done() and int(sink.acknowledged.delivered) < goal:  # noqa: ASYNC110 - at any moment
                await asyncio.sleep(chance.uniform(0, 0.02))
            if pushing.done():
                await pushing
            if int(sink.acknowledged.delivered) == TRANSACTIONS:
                break
            kills += 1
            process.kill()
            await process.wait()
            pushing.cancel()
            await asyncio.wait([pushing])
    assert kills >= 3
    expected = [f"test:{number}:{index}" for number in range(1, TRANSACTIONS + 1) for index in (0, 1)]
    assert await asyncio.to_thread(topics.ids) == expected
