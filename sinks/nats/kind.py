"""The kind ``nats``, also of the scheme ``tls``."""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.nats.settings import FORM, NatsSettings, is_stream_name
from sinks.port import Guarantee, Sink, SinkKind
from wormhole.model.errors import UsageError

__all__ = ["KIND"]


class NatsKind(SinkKind[NatsSettings]):
    """The kind ``nats``. The stream drops a repetition within its window for duplicates."""

    title: ClassVar[str] = "NATS JetStream"
    form: ClassVar[str] = FORM
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    requirement: ClassVar[str] = "wormhole-pubsub[nats]"
    settings = NatsSettings

    def open(self, name: str, settings: NatsSettings) -> Sink:
        from sinks.nats.sink import NatsSink

        stream = settings.stream or name
        if not is_stream_name(stream):
            raise UsageError(
                f"sink {name} needs the name of its stream, because the name of a stream has no dot",
                hint=f'add stream = "{name.replace(".", "-")}"',
            )
        return NatsSink(stream, settings)


KIND: Final = NatsKind()
