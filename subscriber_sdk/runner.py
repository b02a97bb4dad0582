"""Runs a subscriber: `run` and `serve` start the server and the flows, and register the subscriber."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.metrics import samples
from subscriber_sdk.options.subscriber_options import ANY_PORT, Options, RetryPolicy, SubscriberOptions, read_options
from subscriber_sdk.running import Running
from subscriber_sdk.server.dialler import PublisherDialler
from subscriber_sdk.server.found_publishers import FoundPublishers
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.server.stream import Streams
from subscriber_sdk.subscriber import Subscriber
from subscriber_sdk.work.shards import Shards
from wormhole.coordination.port import Coordinator, Registration, SubscriberInfo
from wormhole.coordination.retry import retry_during_outage
from wormhole.host.logs import configure_if_unset
from wormhole.metrics import Exporter
from wormhole.metrics.otel import exported
from wormhole.model.errors import WormholeError

if TYPE_CHECKING:
    from wormhole.config import ApplicationConfig

__all__ = ["Running", "run", "serve", "serve_until_signal"]

log = logging.getLogger("subscriber_sdk")


@contextlib.asynccontextmanager
async def serve(
    subscriber: Subscriber, *, application: str, **options: Unpack[SubscriberOptions]
) -> AsyncIterator[Running]:
    """Receive updates while the block runs. At its end deregister, wait for running callbacks, acknowledge, and release
    every shard.

    Raises :class:`TypeError` for a subscriber without an update callback or with several, and
    :class:`~wormhole.model.errors.UsageError` for wrong options or an unknown application.
    """
    coordinator: Coordinator | None = None
    given = options.get("coordinator")
    if not isinstance(given, (str, os.PathLike)) and hasattr(given, "register_subscriber"):
        coordinator = given
        del options["coordinator"]
    settings = read_options({"application": application, **options}, shared=coordinator is not None)
    Handlers(subscriber)  # raises before anything is connected
    async with contextlib.AsyncExitStack() as stack:
        if coordinator is None and settings.coordinator:
            coordinator = await _connect(settings.coordinator)
            stack.push_async_callback(coordinator.stop)
        if coordinator is not None:
            settings = _as_listed(settings, coordinator)
        configured = None if coordinator is None else await _configured(coordinator, settings)
        if configured is not None and settings.retry is None:
            retry = configured.retry
            settings = replace(settings, retry=RetryPolicy(retry.attempts, retry.first_wait, retry.longest_wait))
        shards = Shards(subscriber, settings)
        stack.push_async_callback(shards.close)
        streams = Streams(shards, settings)
        streams.bind(configured)
        if coordinator is not None:
            streams.epochs = partial(coordinator.recorded_epochs, application)
        stack.callback(streams.publishers.close)
        door = _door(streams, settings, coordinator, configured)
        await door.start()
        stack.push_async_callback(door.stop)
        registration: Registration | None = None
        if coordinator is not None and isinstance(door, PushServer):
            info = SubscriberInfo(
                settings.application, settings.instance, door.address, settings.weight, time.time(), os.geteuid()
            )
            joining = partial(coordinator.register_subscriber, info)
            registration = await retry_during_outage(joining, f"subscriber {settings.application}/{settings.instance}")
        streams.publishers.expected(door.address)
        running = Running(settings, shards, streams, door)
        try:
            with exported(Exporter.SUBSCRIBER, partial(samples, running)):
                yield running
        finally:
            await _leave(registration, shards, streams, settings.stop_timeout)


async def _connect(target: str) -> Coordinator:
    coordinator = await asyncio.to_thread(_coordinator_at, target)
    await coordinator.start()
    return coordinator


def _coordinator_at(target: str) -> Coordinator:
    """Blocks: reads files."""
    # Imported here: a subscriber without a coordinator needs none of its packages.
    from wormhole.coordination.connect import connect

    return connect(target)


def _as_listed(options: Options, coordinator: Coordinator) -> Options:
    """The options, completed by the entry for this subscriber in a file with fixed addresses."""
    from wormhole.coordination.static import StaticCoordinator

    if not isinstance(coordinator, StaticCoordinator):
        return options
    listed = coordinator.listed(options.application)
    if not options.id and len(listed) == 1:
        options = replace(options, id=next(iter(listed)))
    if options.listen == ANY_PORT and not options.advertise and options.id in listed:
        options = replace(options, listen=listed[options.id])
    return options


async def _configured(coordinator: Coordinator, options: Options) -> ApplicationConfig | None:
    """The application's configuration, which decides which side dials. ``None``: the configuration cannot be read, and
    by ``options`` this subscriber dials.
    """
    asking = partial(coordinator.application, options.application)
    if not options.dial:
        return await retry_during_outage(asking, f"subscriber {options.application}/{options.instance}")
    try:
        return await asking()
    except WormholeError:
        return None


def _door(
    streams: Streams, options: Options, coordinator: Coordinator | None, configured: ApplicationConfig | None
) -> PushServer | PublisherDialler:
    """The source of streams: a server that publishers dial, or a dialler of publishers."""
    if options.dial:
        return PublisherDialler(streams, options)
    if coordinator is None or configured is None or configured.connect == "subscriber":
        return PushServer(streams, options)
    return PublisherDialler(streams, options, FoundPublishers(coordinator, options))


async def _leave(registration: Registration | None, shards: Shards, streams: Streams, timeout: float) -> None:
    """Leave the application: deregister, then wait for running callbacks, then inform the publishers."""
    if registration is not None:
        try:
            await asyncio.wait_for(registration.close(), timeout)
        except Exception:
            # The registration disappears with the coordinator's session. Shards are released in any case.
            log.exception("this subscriber could not be deregistered")
    await shards.leave(timeout)
    await streams.leave()


def run(subscriber: Subscriber, *, application: str, **options: Unpack[SubscriberOptions]) -> None:
    """Receive updates until SIGTERM or SIGINT. Then wait for running callbacks, acknowledge, release every shard and
    return.

    Blocks, with an event loop of its own (uvloop if it is installed). Sets up logging unless the application did.
    Options and errors are those of :func:`serve`.
    """

    try:
        configure_if_unset(log)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve_until_signal(subscriber, application, options))
    except WormholeError as error:
        # The error's message is complete. A traceback through this module would hide the message and the caller's line.
        raise error.with_traceback(None) from None


async def serve_until_signal(
    subscriber: Subscriber,
    application: str,
    options: SubscriberOptions,
    beside: Callable[[Running], AbstractAsyncContextManager[object]] = lambda _: contextlib.nullcontext(),
) -> None:
    """Receive updates until SIGTERM or SIGINT, on the caller's event loop. :func:`run` is the same with its own loop.

    ``beside``: a context that is open while the subscriber serves. A signal before that leaves nothing registered.
    """
    loop = asyncio.get_running_loop()
    joining = asyncio.ensure_future(_until_stopped(subscriber, application, options, beside))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, joining.cancel)  # until the application is joined, which an outage may delay
    with contextlib.suppress(asyncio.CancelledError):
        await joining


async def _until_stopped(
    subscriber: Subscriber,
    application: str,
    options: SubscriberOptions,
    beside: Callable[[Running], AbstractAsyncContextManager[object]],
) -> None:
    loop = asyncio.get_running_loop()
    async with serve(subscriber, application=application, **options) as running, beside(running):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.stop)
        try:
            await running.stopped()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # platforms without it
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
