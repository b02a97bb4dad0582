"""The kind ``redis``."""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.port import Guarantee, Sink, SinkKind
from sinks.redis.settings import FORM, RedisSettings

__all__ = ["KIND"]


class RedisKind(SinkKind[RedisSettings]):
    """See the port."""

    title: ClassVar[str] = "Redis"
    form: ClassVar[str] = FORM
    guarantee: ClassVar[Guarantee] = Guarantee.CONVERGES
    requirement: ClassVar[str] = "wormhole-pubsub[redis]"
    settings = RedisSettings

    def open(self, name: str, settings: RedisSettings) -> Sink:
        from sinks.redis.sink import RedisSink

        return RedisSink(settings)


KIND: Final = RedisKind()
