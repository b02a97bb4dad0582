"""The configuration of a sink's Kafka clients, by the names of librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sinks.kafka.settings import KafkaSettings
from wormhole.host.tls import client_context

__all__ = ["Configure", "client_config", "reader_config"]

Configure = Callable[[], Mapping[str, Any]]
"""Makes the configuration of a new client. Blocks, and raises as :func:`client_config`."""


def client_config(name: str, settings: KafkaSettings) -> Mapping[str, Any]:
    """The configuration of a client of the sink ``name``. Blocks. Raises
    :class:`~wormhole.model.errors.TargetRefused` if there is no password, and
    :class:`~wormhole.model.errors.TargetUnavailable` for a TLS file that cannot be used.
    """
    tls, password = settings.tls, settings.read_password()
    protocol = "PLAINTEXT" if tls is None else "SSL"
    config: dict[str, Any] = {
        "bootstrap.servers": settings.brokers,
        "client.id": f"wormhole-{name}",
        "log_level": 0,  # the client logs nothing, because exceptions contain its errors
    }
    if tls is not None:
        client_context(tls.ca, tls.cert, tls.key)  # raises an error that names a wrong file, unlike the client's error
        files = {"ssl.ca.location": tls.ca, "ssl.certificate.location": tls.cert, "ssl.key.location": tls.key}
        config |= {setting: str(file) for setting, file in files.items() if file is not None}
    if password is not None:
        protocol = f"SASL_{protocol}"
        user = {"sasl.mechanisms": settings.mechanism, "sasl.username": settings.user, "sasl.password": password}
        config |= user
    return config | {"security.protocol": protocol}


def reader_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a client that reads records and metadata. It makes no topics, and joins no group."""
    return {**config, "group.id": "wormhole", "enable.auto.commit": False, "fetch.wait.max.ms": 10}
