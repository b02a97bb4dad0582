"""What publishers tell about themselves, over the admin service; read only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import grpc

from wormhole.config import Config, CoordinatorForm, TlsFiles
from wormhole.config import load as load_config
from wormhole.coordination import Coordinator, PublisherInfo, connect
from wormhole.errors import Retryable, StreamBroken, UsageError
from wormhole.refusal import why_unreachable
from wormhole.tls import channel_credentials, target_options
from wormhole.wire.v1 import admin_pb2

__all__ = ["Answer", "Where", "ask", "describe", "find"]

_TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 8
_DESCRIBE: Final = "/wormhole.wire.v1.Admin/Describe"


@dataclass(frozen=True, slots=True)
class Where:
    """How to reach publishers: one ``publisher`` by address, or all that a ``coordinator`` (ZooKeeper, or a .toml file) knows.

    ``tls``: certificates to dial with; ``tls_name``: the name expected in the publisher's certificate instead of its host.
    """

    publisher: str = ""
    coordinator: str = ""
    tls: TlsFiles | None = None
    tls_name: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One publisher's ``status``, or why there is none (``problem``)."""

    address: str
    status: admin_pb2.PublisherStatus | None
    problem: str = ""


def ask(where: Where) -> list[Answer]:
    """Ask every publisher that can be found.

    Raises :class:`~wormhole.errors.WormholeError` when none is found or none answers.
    """
    config = load_config(where.coordinator) if where.coordinator.endswith(".toml") and not where.publisher else None
    addresses = [where.publisher] if where.publisher else _known(where, config)
    tls = where.tls or (None if config is None else config.tls)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda address: _answer(address, tls, where.tls_name), addresses))
    if all(answer.status is None for answer in answers):
        raise StreamBroken(
            "; ".join(answer.problem for answer in answers),
            hint="check that the publisher runs, its address (admin_listen under [publisher]) and the certificates",
        )
    return answers


def _known(where: Where, config: Config | None) -> list[str]:
    if config is None or config.form is not CoordinatorForm.STATIC:
        return _addresses(asyncio.run(find(where)))
    # In the static form nobody registers: the file itself says where its one publisher listens.
    address = config.publisher.admin_listen
    if address.endswith(":0"):
        raise UsageError(
            f"{where.coordinator} is of the static form and lets the publisher choose a port",
            hint='set admin_listen = "127.0.0.1:PORT" under [publisher], or give --publisher as its log tells it',
        )
    return [address]


async def find(where: Where) -> Sequence[PublisherInfo]:
    """The live publishers that the coordinator knows. Raises :class:`~wormhole.errors.WormholeError`."""
    if not where.coordinator:
        raise UsageError(
            "nothing says where the publishers are",
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR), or --publisher HOST:PORT",
        )
    coordinator: Coordinator = await asyncio.to_thread(connect, where.coordinator)
    try:
        await coordinator.start()
        return await coordinator.publishers()
    finally:
        await coordinator.stop()


def _addresses(infos: Sequence[PublisherInfo]) -> list[str]:
    if not infos:
        raise Retryable(
            "no publisher is registered", hint="start one with `wormholectl publisher run`, or name it: --publisher"
        )
    addresses = [info.address for info in infos if info.address]
    if not addresses:
        raise Retryable("the registered publishers have no admin service", hint="set admin_listen under [publisher]")
    return sorted(addresses)


def _answer(address: str, tls: TlsFiles | None, name: str) -> Answer:
    try:
        return Answer(address, describe(address, tls, name))
    except StreamBroken as error:
        return Answer(address, None, error.message)


def describe(address: str, tls: TlsFiles | None = None, tls_name: str = "") -> admin_pb2.PublisherStatus:
    """One publisher's state; blocks. Raises :class:`~wormhole.errors.StreamBroken` when it does not answer."""
    options = target_options(tls_name) if tls_name else []
    if tls is None:
        channel = grpc.insecure_channel(address)
    else:
        channel = grpc.secure_channel(address, channel_credentials(tls), options=options)
    with channel:
        call = channel.unary_unary(
            _DESCRIBE,
            request_serializer=admin_pb2.DescribeRequest.SerializeToString,
            response_deserializer=admin_pb2.PublisherStatus.FromString,
        )
        try:
            status: admin_pb2.PublisherStatus = call(admin_pb2.DescribeRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            raise StreamBroken(f"the publisher at {address} does not answer: {_reason(error)}") from error
    return status


def _reason(error: grpc.RpcError) -> str:
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    text = code().name.lower().replace("_", " ") if code else type(error).__name__
    return f"{text} ({why_unreachable(details())})" if details and details() else text
