"""A sink that is open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nats.js.api import DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig, StreamInfo

from sinks.envelopes.settings import record_subscriber
from sinks.nats.connection import Servers
from sinks.nats.settings import NatsSettings
from sinks.nats.subjects import covers, pattern_of
from sinks.nats.writer import NatsWriter
from sinks.port import Sink
from subscriber_sdk import Subscriber
from wormhole.model.errors import TargetRefused
from wormhole.model.findings import Finding, Report, Severity
from wormhole.model.units import format_size, rounded_size

__all__ = ["NatsSink"]


_CHECK: Final = "target_stream"
_SHORTEST_WINDOW_S: Final = 60.0


def examine_stream(report: Report, info: StreamInfo, settings: NatsSettings) -> None:
    """Add findings to the report: the identity of the stream, its problems, and warnings about its limits."""
    config = info.config
    report.facts |= {
        "messages": str(info.state.messages),
        "bytes": rounded_size(info.state.bytes),
        "window for duplicates": f"{config.duplicate_window:g} s",
        "copies": f"{config.num_replicas}, each in {StorageType(config.storage).value}",
        "retention": RetentionPolicy(config.retention).value,
        "limits": ", ".join(_limits(config)) or "none",
    }
    report.findings += [*_problems(config, settings), *_warnings(config)]
    if report.severity is Severity.OK:
        report.add(_CHECK, Severity.OK, f"stream {config.name} takes the records as they are published")


def _limits(config: StreamConfig) -> Iterator[str]:
    for name, value in (("messages", config.max_msgs), ("messages of a subject", config.max_msgs_per_subject)):
        if value is not None and value > 0:
            yield f"{value} {name}"
    for name, value in (("in all", config.max_bytes), ("a message", config.max_msg_size)):
        if value is not None and value > 0:
            yield f"{format_size(value)} {name}"
    if config.max_age:
        yield f"{config.max_age:g} s old"


def _problems(config: StreamConfig, settings: NatsSettings) -> Iterator[Finding]:
    stream = config.name or ""
    wanted = pattern_of(settings.subject, stream)
    if not any(covers(pattern, wanted.replace(">", "shop.orders.7")) for pattern in config.subjects or []):
        yield Finding(
            _CHECK,
            Severity.PROBLEM,
            f"stream {stream} may not have every subject of {wanted}",
            "a record with another subject halts its flow",
            f"add {wanted} to the stream's subjects",
        )
    if config.sealed:
        yield Finding(
            _CHECK,
            Severity.PROBLEM,
            f"stream {stream} is sealed",
            "it takes no record",
            "name another stream; a sealed one cannot be opened again",
        )


def _warnings(config: StreamConfig) -> Iterator[Finding]:
    if config.duplicate_window < _SHORTEST_WINDOW_S:
        yield Finding(
            _CHECK,
            Severity.WARN,
            f"the window for duplicates is {config.duplicate_window:g} s",
            "records that come again after a longer crash are stored twice",
            "raise duplicate_window, to ten minutes for example",
        )
    if not config.allow_atomic:
        yield Finding(
            _CHECK,
            Severity.WARN,
            "the stream allows no atomic batches",
            "the sink waits for the answer to each record, which takes about ten times as long",
            "switch allow_atomic on (NATS 2.12 or later)",
        )
    if config.storage == StorageType.MEMORY or config.persist_mode == PersistMode.ASYNC:
        yield Finding(
            _CHECK,
            Severity.WARN,
            "the stream acknowledges records before they are on a disk",
            "what was acknowledged is lost when its servers end, and is not published again",
            "use a stream with storage = file that does not persist asynchronously",
        )
    if config.retention == RetentionPolicy.INTEREST:
        yield Finding(
            _CHECK,
            Severity.WARN,
            "the stream keeps records only for the consumers that it has",
            "a record that is published before a consumer is made is lost to it",
            "make the consumers before the sink runs, or use retention = limits",
        )
    elif _deletes(config):
        yield Finding(
            _CHECK,
            Severity.WARN,
            "the stream deletes its oldest records at its limits",
            "a consumer that is further behind misses them without an error",
            "raise the limits; at those of messages and bytes discard = new lets the sink wait instead",
        )


def _deletes(config: StreamConfig) -> bool:
    """Whether the stream deletes records at its limits, other than earlier records of the same subject."""
    sizes = (config.max_msgs or 0) > 0 or (config.max_bytes or 0) > 0
    return bool(config.max_age) or (sizes and config.discard == DiscardPolicy.OLD)


class NatsSink(Sink):
    """See the port."""

    def __init__(self, stream: str, settings: NatsSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._servers = Servers(stream, settings)
        self._subscriber = record_subscriber(settings, NatsWriter(stream, settings, self._servers))
        self.figures = self._subscriber.figures

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(self._settings.url)
        report.facts["stream"] = self._stream
        try:
            info = (await self._servers.connected()).info
        except TargetRefused as refused:
            report.add(
                "target_stream", Severity.PROBLEM, refused.message, next_step=refused.hint or "", code=refused.code
            )
            return report
        examine_stream(report, info, self._settings)
        return report

    async def close(self) -> None:
        await self._servers.close()
