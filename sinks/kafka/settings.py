"""The settings of a sink of Kafka."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, field_validator

from sinks.envelopes.settings import RecordSettings
from sinks.kafka.names import is_topic, topic_of
from wormhole.config.fields import PathFromHere, Seconds, Settings, check_address

__all__ = ["FORM", "KafkaSettings", "KafkaTls"]

FORM: Final = "kafka://[USER@]HOST:PORT[,HOST:PORT...]"
_TABLE: Final = "{table}"


def _topic(value: str) -> str:
    if not is_topic(value):
        raise ValueError("must be a topic's name: at most 249 letters, digits, '.', '_' and '-'")
    return value


Topic = Annotated[str, AfterValidator(_topic)]


class KafkaTls(Settings):
    """PEM files for TLS. ``ca``: the authority of the brokers; ``None``: the system's authorities. ``cert`` and
    ``key``: the client's certificate and its key, for brokers that ask for one.
    """

    ca: PathFromHere | None = None
    cert: PathFromHere | None = None
    key: PathFromHere | None = None


class KafkaSettings(RecordSettings):
    """``topic``: the template of a table's topic. ``marker_topic``: the compacted topic of datamarkers. ``partitions``:
    by topic, the number of partitions after an operator changed it. ``timeout``: seconds that one use of the store may
    take. ``transaction_timeout``: seconds after which the brokers end the transaction of a dead sink. ``tls``: ``None``
    for no TLS. ``mechanism``: the SASL mechanism for the user of the URL.
    """

    topic: str = _TABLE
    marker_topic: Topic = "wormhole-markers"
    partitions: dict[Topic, Annotated[int, Field(gt=0)]] = Field(default_factory=dict)
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    timeout: Seconds = 20.0
    transaction_timeout: Seconds = 300.0
    tls: KafkaTls | None = None
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        try:
            if parts.path.strip("/") or parts.query or parts.fragment:
                raise ValueError
            for address in _brokers(value).split(","):
                check_address(address)
        except ValueError:
            raise ValueError(f"must be {FORM}") from None
        return value

    @field_validator("topic")
    @classmethod
    def _template(cls, value: str) -> str:
        if not is_topic(topic_of(value, "t")):
            raise ValueError("must be a topic's name, in which {table} stands for the table's")
        return value

    @property
    def brokers(self) -> str:
        """The addresses, as ``host:port,host:port``."""
        return _brokers(self.url)

    @property
    def user(self) -> str | None:
        """The account that logs in; ``None``: there is no login."""
        user, at, _ = urlsplit(self.url).netloc.rpartition("@")
        return unquote(user) if at else None


def _brokers(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
