"""Where publishers are: one by its address, all that a coordinator knows, or those of a static installation's files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from wormhole.config import Config, CoordinatorForm, PublisherConfig
from wormhole.config import load as load_config
from wormhole.coordination import Coordinator, PublisherInfo, connect
from wormhole.coordination.up_data_folder import up_folder
from wormhole.host.ready_file import ReadyFile, read_ready, ready_path
from wormhole.model.errors import Retryable, UsageError
from wormholectl.options import Where

__all__ = [
    "STATE_DIR",
    "addresses",
    "ask_coordinator",
    "configured",
    "serving",
    "state_dir",
    "with_coordinator",
]

T = TypeVar("T")

STATE_DIR: Final = PublisherConfig().state_dir
"""Where publishers keep their state when nothing says otherwise."""


def state_dir(where: Where, config: Config | None) -> Path:
    """Where this host's publishers keep their state, as ``where`` or its file says, never a peer."""
    return where.folder or (STATE_DIR if config is None else config.publisher.state_dir)


def configured(where: Where) -> Config | None:
    """The configuration file that ``where`` names, if it names one.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    if not where.coordinator.endswith((".toml", ".json")):
        return None
    config = load_config(where.coordinator)
    # `wormholectl up` puts into its data folder what the file puts nowhere.
    folder = up_folder(Path(where.coordinator))
    if "state_dir" in config.publisher.model_fields_set or not (folder / "up.json").exists():
        return config
    placed = config.publisher.model_copy(update={"state_dir": folder / "state"})
    return config.model_copy(update={"publisher": placed})


def addresses(where: Where, config: Config | None) -> list[str]:
    """The admin addresses of all publishers.

    Raises :class:`~wormhole.model.errors.WormholeError` when there is none.
    """
    if where.publisher:
        return [where.publisher]
    if config is not None and config.form is CoordinatorForm.STATIC:
        return _of_files(where.coordinator, config)
    return _of_infos(with_coordinator(where, _publishers))


async def _publishers(coordinator: Coordinator) -> Sequence[PublisherInfo]:
    return await coordinator.publishers()


def with_coordinator(where: Where, use: Callable[[Coordinator], Awaitable[T]]) -> T:
    """What ``use`` makes of the started coordinator; blocks. Raises :class:`~wormhole.model.errors.WormholeError`."""
    if not where.coordinator:
        missing = "nothing says where the publishers are" if not where.publisher else "this command needs a coordinator"
        raise UsageError(
            missing,
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)"
            + ("" if where.publisher else ", or --publisher HOST:PORT"),
        )

    config = configured(where)
    target = config if config is not None and config.form is CoordinatorForm.STATIC else where.coordinator

    return ask_coordinator(target, use)


def ask_coordinator(target: Config | Path | str, use: Callable[[Coordinator], Awaitable[T]]) -> T:
    """As :func:`with_coordinator`, of the one that ``target`` names: ZooKeeper, or a file or its content."""

    async def started() -> T:
        coordinator: Coordinator = await asyncio.to_thread(connect, target)
        try:
            await coordinator.start()
            return await use(coordinator)
        finally:
            await coordinator.stop()

    return asyncio.run(started())


def serving(config: Config) -> dict[str, ReadyFile]:
    """The live publishers of this host by ``dataset/copy/log``, as their ready files say. Blocks."""
    logs = [(d, c, log) for d, data in config.datasets.items() for c, one in data.copies.items() for log in one.logs]
    found = {"/".join(log): read_ready(ready_path(config.publisher.state_dir, *log)) for log in logs}
    return {log: told for log, told in found.items() if told is not None}


def _of_files(file: str, config: Config) -> list[str]:
    """In the static form nobody registers: each running publisher's ready file says where it listens."""
    found = sorted({one.admin for one in serving(config).values() if one.admin})
    if found:
        return found
    address = config.publisher.admin_listen
    if not address.endswith(":0"):
        return [address]  # another host's, or another user's
    raise Retryable(
        f"no publisher of {file} runs on this host: there is no ready file in {config.publisher.state_dir}",
        hint="start it (`wormholectl up`, `monitor run` or `publisher run`), or give --publisher HOST:PORT",
    )


def _of_infos(infos: Sequence[PublisherInfo]) -> list[str]:
    if not infos:
        raise Retryable(
            "no publisher is registered",
            hint="start one with `wormholectl up`, `monitor run` or `publisher run`, or name it: --publisher",
        )
    found = [info.address for info in infos if info.address]
    if not found:
        raise Retryable("the registered publishers have no admin service", hint="set admin_listen under [publisher]")
    return sorted(found)
