"""The archiver as a process: it subscribes, writes, and answers ``/metrics`` until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import Any, Final, NoReturn

from spark_replay.archive.archiver import Archiver
from spark_replay.archive.compactor import Compactor
from spark_replay.archive.store import store_of
from subscriber_sdk import RetryPolicy, Running, SubscriberOptions, serve
from subscriber_sdk.metrics import samples
from subscriber_sdk.options.subscriber_options import read_options
from wormhole.admin.client import Admin
from wormhole.config import Config, TlsFiles
from wormhole.host import allocator
from wormhole.host.compiled import warn_interpreted
from wormhole.host.where import Where

__all__ = ["run"]

_log = logging.getLogger(__name__)

_HANDLER_S: Final = 300.0
"""How long a callback may take. A large file has to be committed to a slow storage within it."""
_RETRY: Final = RetryPolicy(attempts=1_000_000, longest_wait=30.0)
"""With this number of attempts the archiver outlasts a storage that is away for an hour. The log is kept meanwhile.
"""
_BUFFER: Final = 32 << 20
"""The SDK's ``buffer``, unless the environment sets another. It is half the default: after a rollback the publisher is
asked again anyway, and received updates only wait for a file.
"""


def run(config: Config, dataset: str, coordinator: Any, *, http: str = "", accept_loss: bool = False) -> None:
    """Archive ``dataset``. ``coordinator``: as the SDK's option; the SDK's other options come from the environment.

    ``http``: the address at which ``/metrics`` is answered; empty: none. ``accept_loss``: see
    :class:`~spark_replay.archive.archiver.Archiver`. Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    allocator.bound(1)  # one arena for all threads; it is called before any other thread exists
    asyncio.run(_until_stopped(config, dataset, coordinator, http, accept_loss))


async def _until_stopped(config: Config, dataset: str, coordinator: Any, http: str, accept_loss: bool) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:  # a second signal does not hurry the end
            stopped = True
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.to_thread(warn_interpreted, "spark_replay")
    with contextlib.suppress(asyncio.CancelledError):
        store = await asyncio.to_thread(store_of, config, dataset, create=True)
        settings = config.datasets[dataset].archive
        assert settings is not None  # else there would be no store
        archiver = Archiver(
            store, flush_every=settings.flush_every, flush_size=settings.flush_size, accept_loss=accept_loss
        )
        try:
            options: SubscriberOptions = {"coordinator": coordinator, "retry": _RETRY, "handler_timeout": _HANDLER_S}
            if not os.environ.get("WORMHOLE_BUFFER"):
                options["buffer"] = _BUFFER
            async with serve(archiver, application=settings.application, **options) as running:
                _log.info("%s is archived to %s", dataset, store.to)
                async with _metrics(archiver, running, http, config):
                    if settings.compact == "auto":
                        where = _publishers(config, str(coordinator), settings.application)
                        compactor = Compactor(store, lambda: archiver.shards, lambda: _held(where, dataset))
                        await _compact(compactor, archiver.assigned)
                    await asyncio.Event().wait()
        finally:
            archiver.close()


async def _compact(compactor: Compactor, assigned: asyncio.Event) -> NoReturn:
    """Merge until cancelled. A merge that has begun is finished first. An assignment ends the wait for small files."""
    while True:
        assigned.clear()
        wait = await asyncio.to_thread(compactor.step)
        if compactor.merged:
            await asyncio.sleep(wait)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(assigned.wait(), wait)


def _publishers(config: Config, coordinator: str, application: str) -> Where:
    """How the archiver reaches publishers: with its own certificate (the SDK's option), else the configuration's."""
    own = read_options({"application": application, "coordinator": coordinator}).tls
    return Where(coordinator=coordinator, tls=own if isinstance(own, TlsFiles) else config.tls)


def _held(where: Where, dataset: str) -> bool:
    """Whether a replay holds a flow of the dataset by its lease. Blocks. Raises if a publisher does not answer."""
    flows = (flow for one in Admin(where).publishers() if one.dataset == dataset for flow in one.flows)
    return any(flow.HasField("replay") and flow.replay.lease_left_s > 0 for flow in flows)


def _metrics(
    archiver: Archiver, running: Running, listen: str, config: Config
) -> contextlib.AbstractAsyncContextManager[object]:
    if not listen:
        return contextlib.nullcontext()
    # Imported here: without it an archiver needs no HTTP server.
    from wormhole.host.metrics_endpoint import metrics_endpoint

    found = lambda: [*samples(running), *archiver.samples()]  # noqa: E731
    return metrics_endpoint(listen, found, config.tls, insecure=config.insecure)
