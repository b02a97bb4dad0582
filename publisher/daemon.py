"""The publisher process: the one module that joins configuration, source, stores, coordination and serving.

``wormholectl publisher run`` calls :func:`run`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from publisher.flows.applications import Served
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.known_flows import KnownFlows
from publisher.flows.ownership import LogHandedOver, Ownership
from publisher.flows.served_applications import ServedApplications
from publisher.operate.admin import serve_admin
from publisher.operate.http import serve_http
from publisher.relay.configured import configured_relay, left_relay
from publisher.relay.source import RelayedSource
from publisher.sources import open_tables, open_with
from publisher.sources.configured import configured_source
from publisher.sources.supervised import SupervisedSource
from publisher.stores.markers import ZooKeeperMarkerStore, open_store
from publisher.stores.source_state import InheritedState, copies_of
from publisher.stores.table_boundaries import TableBoundaries
from publisher.wiring import operated, wired
from wormhole import __version__
from wormhole.config import Config, SourceConfig, check_candidates, check_formats, preference
from wormhole.config.datastores import datastore
from wormhole.config.one_log import digest, write_running
from wormhole.coordination.connect import connect, warn
from wormhole.coordination.port import LogGroup
from wormhole.formats import open_formats
from wormhole.host import allocator
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.host.compiled import warn_interpreted
from wormhole.host.logs import bind
from wormhole.host.private_files import keep_private
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, remove_ready, write_ready
from wormhole.host.tls import check_listen, open_trust
from wormhole.metrics import Exporter
from wormhole.metrics.otel import exported, on_this_loop
from wormhole.model.errors import ConfigError, MarkerStoreError, Retryable, WormholeError
from wormhole.ports.datastore import SourceOptions, Standing
from wormhole.ports.log_source import LogSource
from wormhole.ports.marker_store import MarkerStore

__all__ = ["run", "serve"]

_log = logging.getLogger(__name__)

# The longest time for which a busy decoder thread holds the interpreter lock while the event loop waits. The 99th
# percentile of the loop's delay is 10 ms with the default of 5 ms, and well under 1 ms with this value.
_SWITCH_S = 0.0005
# Python's garbage collector stops deliveries every few seconds (measured at 1,000 transactions a second: for 30 to
# 80 ms). Objects that exist when the publisher is ready are excluded from its search. Later objects, mostly the change
# buffer, are searched a tenth as often. A standby excludes its objects early, because a takeover has no time for that.
_GARBAGE = 700, 10, 100
# The pause in which the next owner begins, before this process becomes a candidate again.
_NEXT_BEGINS_S = 1.0
# Memory arenas of the allocator: one for the event loop, one for all threads of readers, stores and gRPC.
_ARENAS = 2


async def serve(
    config: Config,
    dataset: str,
    copy: str,
    log: str,
    ready: Callable[[str], None] = lambda address: None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Serve one log until cancelled. The process owns the log, or stands by while another publisher owns it.

    ``ready`` is called with the admin address. Raises :class:`~wormhole.model.errors.WormholeError`."""
    check_candidates(config, dataset, copy, log)
    while True:
        try:
            await _serve(config, dataset, copy, log, ready)
        except LogHandedOver as error:
            _log.info("%s/%s/%s: %s; this process stands by now", dataset, copy, log, error)
            if not error.gone:
                await clock.sleep(_NEXT_BEGINS_S)
        gc.unfreeze()  # frees the objects of the service that ended, which are in cycles
        gc.collect()


async def _serve(config: Config, dataset: str, copy: str, log: str, ready: Callable[[str], None]) -> None:
    """Serve until cancelled. Raises :class:`LogHandedOver` once another process owns the log."""
    place, options = configured_source(config, dataset, copy, log)
    check_formats(config, dataset)
    publishing = config.publisher
    check_listen(publishing.admin_listen, config.tls, config.insecure, setting="publisher.admin_listen")
    state = publishing.state_dir / dataset / copy / log
    await asyncio.to_thread(_make_folder, state)
    async with AsyncExitStack() as stack:
        coordinator = connect(config)
        stack.push_async_callback(coordinator.stop)
        await coordinator.start()
        await warn(coordinator, _log)
        store = await asyncio.to_thread(open_store, config, dataset, copy, log)
        stack.push_async_callback(asyncio.to_thread, store.close)
        group = LogGroup(dataset, config.datasets[dataset].group(copy), log)
        witness = None if publishing.markers == "memory" else state / "flows.json"
        known = KnownFlows(coordinator, witness, includes=group.includes)
        if isinstance(store, ZooKeeperMarkerStore):
            applications = ServedApplications(coordinator, config.datasets[dataset], copy)
            following = BackgroundTasks()
            stack.push_async_callback(following.stop)
            following.spawn(applications.run(), "served-applications")
            candidate = _candidate(config, (dataset, copy, log), place, options, store, known, applications)
            ownership = Ownership(coordinator, fenced=True, candidacy=Candidacy(coordinator, candidate))
            loop, fenced = asyncio.get_running_loop(), ownership
            store.guard(ownership.fence, lambda reason: loop.call_soon_threadsafe(fenced.distrust, reason))
            inherited = _inherited(config, (dataset, copy, log), store, applications)
            options = replace(options, state=inherited, may_act=ownership.may_send)
        else:
            ownership = Ownership(coordinator, fenced=False)
        source = await _supervised(config, (dataset, copy, log), open_with(place.source, options))
        stack.push_async_callback(asyncio.to_thread, source.stop)
        trust = await asyncio.to_thread(open_trust, config.tls)
        settled = config.datasets[dataset]
        formats = await asyncio.to_thread(open_formats, settled.value_format, settled.values)
        served = Served(settled, copy, log, place.kind, publishing, trust, formats)
        publisher = wired(
            served,
            source,
            store,
            coordinator,
            known,
            relay=source.relay,
            open_tables=partial(open_tables, place.source, options),
            boundaries=TableBoundaries(state / "tables", options.state),
            ownership=ownership,
            insecure=config.insecure,
        )
        process, reached = publisher.process, operated(publisher)
        address = await stack.enter_async_context(
            serve_admin(served, process, reached, SYSTEM_CLOCK, publishing.admin_listen, trust)
        )
        http = await serve_http(reached, publishing.http_listen, trust, config.insecure)
        stack.push_async_callback(http.close)
        process.http_address = http.address
        stack.enter_context(exported(Exporter.PUBLISHER, on_this_loop(reached.metrics.collect)))
        path = ready_path(publishing.state_dir, dataset, copy, log)
        running = partial(write_running, config, state, dataset, copy, log)
        await asyncio.to_thread(_say_ready, path, address, http.address, digest(config, dataset, copy, log), running)
        stack.push_async_callback(asyncio.to_thread, remove_ready, path)
        await asyncio.to_thread(warn_interpreted, "datastores")
        start_source = partial(_start, source, store, f"{dataset}/{copy}/{log}")
        await publisher.run(lambda: ready(address), start_source, partial(asyncio.to_thread, source.stop))


async def _supervised(config: Config, served: tuple[str, str, str], inner: LogSource) -> SupervisedSource:
    """The log's source. It reads through the relay if one is configured, or if a former one left records.

    ``served``: dataset, copy and log."""
    relay = configured_relay(config, *served) or await asyncio.to_thread(left_relay, config, *served)
    relayed = None if relay is None else RelayedSource(inner, *relay)
    return SupervisedSource(relayed or inner, relayed)


async def _start(source: SupervisedSource, store: MarkerStore, log: str) -> None:
    try:
        await asyncio.to_thread(source.start)
    except WormholeError as error:
        # A datastore may start after its publisher. A permanent error ends a publisher that serves no flow yet. A
        # publisher that has flows stays, because operators can query and change flows only while it runs.
        if not isinstance(error, Retryable) and not await asyncio.to_thread(store.load):
            raise
        _log.error("publisher of %s serves, and waits for its log: %s", log, error)


def _candidate(
    config: Config,
    served: tuple[str, str, str],
    place: SourceConfig,
    options: SourceOptions,
    store: ZooKeeperMarkerStore,
    known: KnownFlows,
    applications: ServedApplications,
) -> Candidate:
    """This process as a candidate for owning the log. ``served``: dataset, copy and log."""
    dataset, copy, log = config.datasets[served[0]], *served[1:]
    found, failover = datastore(place.kind), dataset.failover_of(copy)

    url = found.url_of_log(place.source, log)

    group = LogGroup(dataset.name, dataset.group(copy), log)

    def ask(served: Collection[str]) -> Standing:
        markers = [record.marker for name in served for record in store.load(name).values()]
        delivered = {marker.delivered for marker in markers if marker.delivered}
        return found.standing(url, options.login, delivered, failover=failover is not None)

    async def look() -> Standing:
        served = await applications.names()
        with suppress(WormholeError):  # without contact no process takes the log
            await known.follow(served)
        return await asyncio.to_thread(ask, served)

    earlier = [LogGroup(dataset.name, name, log) for name in dataset.earlier_groups(copy)]

    async def former() -> Collection[LogGroup]:
        if failover is not None:
            return earlier
        found = []
        for one in earlier:
            with suppress(MarkerStoreError):  # the log cannot be opened then: see `InheritedState`
                # A failover group without this copy may have an owner, but serves none of these flows.
                if copy in await asyncio.to_thread(copies_of, store.source_state(one)):
                    found.append(one)
        return found

    host = config.monitor.host_name
    return Candidate(
        group,
        copy,
        host,
        preference(dataset, copy, log, host),
        0.0 if failover is None else failover.patience,
        look,
        former,
    )


def _inherited(
    config: Config, served: tuple[str, str, str], store: ZooKeeperMarkerStore, applications: ServedApplications
) -> InheritedState:
    """The source's documents about the servers behind its log. ``served``: dataset, copy and log."""
    dataset, copy, log = config.datasets[served[0]], *served[1:]
    failover = dataset.failover_of(copy)
    groups = (dataset.group(copy), *dataset.earlier_groups(copy))
    present, *earlier = (store.source_state(LogGroup(dataset.name, group, log)) for group in groups)
    return InheritedState(present, earlier, (copy,) if failover is None else failover.copies, applications.any)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"publisher.state_dir: {path} cannot be made: {error.strerror}",
            hint="name a folder that this user may write to as state_dir under [publisher]",
            code="file-unwritable",
        ) from error


def _say_ready(path: Path, admin: str, http: str, running: str, write: Callable[[], None]) -> None:
    pid = os.getpid()
    try:
        write()
        write_ready(path, ReadyFile(pid, process_started(pid) or 0, admin, http, __version__, running))
    except OSError as error:
        # Other processes could not find this publisher. It ends, and its monitor starts it again.
        raise Retryable(
            f"{path} cannot be written: {error.strerror}",
            hint="make room on that disk, or let this user write there; state_dir under [publisher] names another",
            code="file-unwritable",
        ) from error


def run(config: Config, dataset: str, copy: str, log: str) -> None:
    """Serve one log until SIGTERM or SIGINT. Then finish the work, store datamarkers and leave.

    Raises :class:`~wormhole.model.errors.WormholeError`."""
    import uvloop

    keep_private()
    sys.setswitchinterval(_SWITCH_S)
    allocator.bound(_ARENAS)
    gc.collect()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(config, dataset, copy, log))


def _settle(dataset: str, copy: str, log: str, address: str) -> None:
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    _log.info("serving %s/%s/%s, admin at %s", dataset, copy, log, address)


async def _until_signalled(config: Config, dataset: str, copy: str, log: str) -> None:
    bind(dataset=dataset, copy=copy, log=log)
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(
        serve(
            config,
            dataset,
            copy,
            log,
            partial(_settle, dataset, copy, log),
        )
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        _log.info("stopped")
    except BaseExceptionGroup as group:
        # Several tasks ended together. The first known error names the next step. The other errors followed from it.
        known = group.subgroup(WormholeError)
        if known is None:
            raise
        raise _leaf(known) from group


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
