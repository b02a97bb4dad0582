"""Finds publishers: one by its address, all that a coordinator knows, or those of a static installation's files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from wormhole.admin.blocking import wait_for_result
from wormhole.config import Config, CoordinatorForm, DatasetConfig, PublisherConfig, named_logs
from wormhole.config import load as load_config
from wormhole.coordination.connect import connect
from wormhole.coordination.port import (
    CandidateInfo,
    Coordinator,
    HostRequest,
    LogGroup,
    LogOwners,
    PublisherInfo,
)
from wormhole.coordination.standbys import why_not
from wormhole.coordination.up_data_folder import up_folder
from wormhole.host.ready_file import ReadyFile, read_ready, ready_path
from wormhole.host.where import Where
from wormhole.model.errors import Retryable, UsageError
from wormhole.model.visible import few

__all__ = [
    "STATE_DIR",
    "Drained",
    "Found",
    "Unowned",
    "ask_coordinator",
    "configured",
    "group_of",
    "host_request",
    "log_owners",
    "publishers",
    "serving",
    "state_dir",
    "with_coordinator",
]

T = TypeVar("T")

STATE_DIR: Final = PublisherConfig().state_dir
"""The default state folder of publishers."""


def state_dir(where: Where, config: Config | None) -> Path:
    """The state folder of this host's publishers: from ``where`` or its file, never from a peer."""
    return where.folder or (STATE_DIR if config is None else config.publisher.state_dir)


def configured(where: Where) -> Config | None:
    """The configuration file that ``where`` names, if it names one.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    if not where.coordinator.endswith((".toml", ".json")):
        return None
    config = load_config(where.coordinator)
    # `wormholectl up` writes files into its data folder unless the configuration file names another folder.
    folder = up_folder(Path(where.coordinator))
    if "state_dir" in config.publisher.model_fields_set or not (folder / "up.json").exists():
        return config
    placed = config.publisher.model_copy(update={"state_dir": folder / "state"})
    return config.model_copy(update={"publisher": placed})


@dataclass(frozen=True, slots=True)
class Drained:
    """Logs that no publisher serves because their ``host`` is drained ``by`` an operator.

    ``applications``: those of the logs' datasets. Their flows are therefore not known.
    """

    host: str
    by: str
    logs: tuple[str, ...]
    applications: frozenset[str]

    def __str__(self) -> str:
        return (
            f"host {self.host} is drained by {self.by or 'an operator'}: {few(self.logs)} "
            f"{'is' if len(self.logs) == 1 else 'are'} not served, and the flows there are not known"
        )


@dataclass(frozen=True, slots=True)
class Unowned:
    """A log without an owner although ``standbys``, in order of preference, could become its owner.

    ``applications``: those of its dataset. Their flows are therefore not known.
    """

    group: LogGroup
    standbys: tuple[CandidateInfo, ...]
    applications: frozenset[str]

    @property
    def hint(self) -> str:
        """The next step."""
        hints = dict.fromkeys(why_not(one).hint for one in self.standbys)
        return "; ".join(filter(None, hints)) or "`wormholectl publishers` shows who has taken over"

    def __str__(self) -> str:
        waits = ((one.name, why_not(one)) for one in self.standbys)
        candidates = (
            f"{name} stands by{f': {why.text}' if why else ' and is about to take over'}" for name, why in waits
        )
        return f"no publisher owns the log {self.group}, and the flows there are not known: {few(list(candidates))}"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search. ``addresses``: the addresses of the admin services of publishers."""

    addresses: Sequence[str]
    drained: Sequence[Drained] = ()
    unowned: Sequence[Unowned] = ()


def publishers(where: Where, config: Config | None) -> Found:
    """All publishers, the logs without a publisher because their host is drained, and the logs whose candidates all
    stand by.

    Raises :class:`~wormhole.model.errors.WormholeError` when nothing is found.
    """
    if where.publisher:
        return Found([where.publisher])
    if config is None or config.form is not CoordinatorForm.STATIC:
        return with_coordinator(where, _registered)
    served = serving(config)
    drained: list[Drained] = []
    if any(log not in served for log, _ in named_logs(config.datasets)):
        host = config.monitor.host_name
        drained = with_coordinator(where, lambda coordinator: _drained(coordinator, served, host))
    return Found([] if drained and not served else _of_files(where.coordinator, config, served), drained)


async def _registered(coordinator: Coordinator) -> Found:
    infos = list(await coordinator.publishers())
    served = [f"{one.dataset}/{one.copy}/{one.log}" for one in infos]
    stored = await coordinator.configuration()
    running = {group_of(stored.datasets, log) for log in served}
    missing = sorted({group_of(stored.datasets, log) for log, _ in named_logs(stored.datasets)} - running, key=str)
    known = await coordinator.log_owners() if missing else {}
    unowned = []
    for group in missing:
        owners = known.get(group)
        if owners is not None and owners.owner is not None:
            infos.append(owners.owner)  # it registers in a moment
            served.append(f"{group.dataset}/{owners.owner.copy}/{group.log}")
        elif owners is not None and owners.candidates:
            names = frozenset(name for name, one in stored.applications.items() if one.dataset == group.dataset)
            unowned.append(Unowned(group, owners.candidates, names))
    drained = await _drained(coordinator, served)
    return Found([] if (drained or unowned) and not infos else _of_infos(infos), drained, unowned)


async def _drained(coordinator: Coordinator, served: Iterable[str], this_host: str = "") -> list[Drained]:
    """The logs of drained hosts that no publisher serves and that no other host should serve.

    ``served``: the names of served logs. ``this_host``: the host of logs that name none.
    """
    stored = await coordinator.configuration()
    monitors = await coordinator.monitors()
    # Other processes may write there: a name that is not a log's is ignored.
    logs = {one.host: {log for log in one.publishers if log.count("/") == 2} for one in monitors}
    for log, settings in named_logs(stored.datasets):
        for host in settings.candidates or ((this_host,) if this_host else ()):
            logs.setdefault(host, set()).add(log)

    def group(log: str) -> LogGroup:
        return group_of(stored.datasets, log)

    running = {group(log) for log in served}
    away = {host: {log for log in named if group(log) not in running} for host, named in sorted(logs.items())}
    requests = {host: await host_request(coordinator, host) for host, named in away.items() if named}
    expected = {group(log) for host, request in requests.items() if not request.drained for log in away[host]}
    found = []
    for host, request in requests.items():
        kept = tuple(sorted(log for log in away[host] if group(log) not in expected))
        if request.drained and kept:
            datasets = {log.partition("/")[0] for log in kept}
            names = frozenset(name for name, one in stored.applications.items() if one.dataset in datasets)
            found.append(Drained(host, request.by, kept, names))
    return found


def group_of(datasets: Mapping[str, DatasetConfig], log: str) -> LogGroup:
    """The group that contends for a log, ``dataset/copy/log``."""
    dataset, copy, name = log.split("/")
    return LogGroup(dataset, copy if dataset not in datasets else datasets[dataset].group(copy), name)


async def host_request(coordinator: Coordinator, host: str) -> HostRequest:
    """An operator's request for a host."""
    return await anext(coordinator.watch_host(host))


def log_owners(where: Where) -> Mapping[LogGroup, LogOwners]:
    """The owner and the candidates of each log; empty if ``where`` names a publisher by its address. Blocks.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    if where.publisher:
        return {}
    return with_coordinator(where, lambda coordinator: coordinator.log_owners())


def with_coordinator(where: Where, use: Callable[[Coordinator], Awaitable[T]]) -> T:
    """The result of ``use`` with the started coordinator. Blocks. Raises
    :class:`~wormhole.model.errors.WormholeError`.
    """
    if not where.coordinator:
        missing = (
            "it is not known where the publishers are" if not where.publisher else "this command needs a coordinator"
        )
        raise UsageError(
            missing,
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)"
            + ("" if where.publisher else ", or --publisher HOST:PORT"),
        )

    config = configured(where)
    target = config if config is not None and config.form is CoordinatorForm.STATIC else where.coordinator

    return ask_coordinator(target, use)


def ask_coordinator(target: Config | Path | str, use: Callable[[Coordinator], Awaitable[T]]) -> T:
    """:func:`with_coordinator` for the coordinator that ``target`` names: ZooKeeper, or a file or its content."""

    async def started() -> T:
        coordinator: Coordinator = await asyncio.to_thread(connect, target)
        try:
            await coordinator.start()
            return await use(coordinator)
        finally:
            await coordinator.stop()

    return wait_for_result(started())


def serving(config: Config) -> dict[str, ReadyFile]:
    """The live publishers of this host by ``dataset/copy/log``, from their ready files. Blocks."""
    state_dir = config.publisher.state_dir
    found = {log: read_ready(ready_path(state_dir, *log.split("/"))) for log, _ in named_logs(config.datasets)}
    return {log: state for log, state in found.items() if state is not None}


def _of_files(file: str, config: Config, served: Mapping[str, ReadyFile]) -> list[str]:
    """The addresses in the static form, in which no publisher registers: the ready file of each running one has its
    address.
    """
    found = sorted({one.admin for one in served.values() if one.admin})
    if found:
        return found
    address = config.publisher.admin_listen
    if not address.endswith(":0"):
        return [address]  # another host's, or another user's
    raise Retryable(
        f"no publisher of {file} runs on this host: there is no ready file in {config.publisher.state_dir}",
        hint="start it (`wormholectl up`, `monitor run` or `publisher run`), or give --publisher HOST:PORT",
        code="no-publisher",
    )


def _of_infos(infos: Sequence[PublisherInfo]) -> list[str]:
    if not infos:
        raise Retryable(
            "no publisher is registered",
            hint="start one with `wormholectl up`, `monitor run` or `publisher run`, or name it: --publisher",
            code="no-publisher",
        )
    found = [info.address for info in infos if info.address]
    if not found:
        raise Retryable(
            "the registered publishers have no admin service",
            hint="set admin_listen under [publisher]",
            code="no-publisher",
        )
    return sorted(found)
