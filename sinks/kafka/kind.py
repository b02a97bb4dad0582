"""The kind ``kafka``."""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.kafka.settings import FORM, KafkaSettings
from sinks.port import Guarantee, Sink, SinkKind
from wormhole.model.errors import UsageError

__all__ = ["KIND"]


class KafkaKind(SinkKind[KafkaSettings]):
    """The kind ``kafka``. Its guarantee holds for readers with ``read_committed``."""

    title: ClassVar[str] = "Kafka"
    form: ClassVar[str] = FORM
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    requirement: ClassVar[str] = "wormhole-pubsub[kafka]"
    settings = KafkaSettings

    def open(self, name: str, settings: KafkaSettings) -> Sink:
        from sinks.kafka.sink import KafkaSink

        if (settings.user is None) != (settings.password_file is None):
            raise UsageError(
                f"sink {name} needs a user in its url and a password_file, or neither",
                hint="write kafka://USER@HOST:PORT, and name a file that holds the password with password_file",
            )
        return KafkaSink(name, settings)


KIND: Final = KafkaKind()
