"""Checks a new configuration against the stored one and the running fleet, before an operator applies it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from wormhole.config import (
    ApplicationConfig,
    Config,
    CoordinatorForm,
    DatasetConfig,
    LogConfig,
    check_together,
    named_logs,
    relay_of,
    skips_no_less,
    what_is_recorded,
)
from wormhole.coordination.differences import Differences, changed
from wormhole.coordination.port import StoredConfig
from wormhole.model.errors import ConfigError

__all__ = ["Fleet", "check_possible", "warnings"]


@dataclass(slots=True, frozen=True)
class Fleet:
    """The running part of the fleet.

    ``served``: applications that have flows; ``connected``: applications with live subscribers; ``hosts``: hosts with a
    monitor.
    """

    served: Collection[str] = ()
    connected: Collection[str] = ()
    hosts: Collection[str] = ()


def check_possible(stored: StoredConfig, found: Differences, fleet: Fleet) -> None:
    """Raise :class:`~wormhole.model.errors.ConfigError`, which lists every conflict.

    New settings must fit those that stay, and datamarkers belong to one dataset.
    """
    datasets = changed(stored.datasets, found.change.datasets)
    problems = check_together(datasets, changed(stored.applications, found.change.applications))
    for name, after in found.change.applications.items():
        before = stored.applications.get(name)
        if before is not None and after is not None and name in fleet.served and before.dataset != after.dataset:
            problems.append(
                f"applications.{name}.dataset: has datamarkers of {before.dataset}, which say nothing about "
                f"{after.dataset}: "
                "give the application that reads it a name of its own"
            )
    if problems:
        raise ConfigError(
            "\n  ".join(["the change would break what is there; nothing was written", *problems]), code="config-changed"
        )


def warnings(stored: StoredConfig, found: Differences, wanted: Config, fleet: Fleet) -> tuple[str, ...]:
    """Warnings about parts of the change that are allowed but may be a mistake."""
    found_warnings: list[str] = []
    for name, dataset in found.change.datasets.items():
        found_warnings += _of_dataset(stored, name, stored.datasets.get(name), dataset, fleet)
    for name, application in found.change.applications.items():
        found_warnings += _of_application(name, stored.applications.get(name), application, fleet)
    found_warnings += _of_relays(stored, wanted)
    found_warnings += _of_hosts(wanted, fleet)
    found_warnings += _of_sources(stored, wanted)
    return tuple(found_warnings)


def _of_dataset(
    stored: StoredConfig, name: str, before: DatasetConfig | None, after: DatasetConfig | None, fleet: Fleet
) -> Iterator[str]:
    if before is None:
        return
    served = sorted(
        app for app, settings in stored.applications.items() if settings.dataset == name and app in fleet.served
    )
    if not served:
        return
    if after is None:
        yield f"datasets.{name} is removed: no publisher reads it for {', '.join(served)} any more"
        return
    if before.shard_by != after.shard_by:
        yield (
            f"datasets.{name}.shard_by changes, and {', '.join(served)} have datamarkers by the shards of before: "
            "each new shard begins at "
            "the earliest datamarker of its application, so much is delivered once more, and `pin` and the order of "
            "one key across the "
            "change do not carry over"
        )
    sources = {place: log for place, _, log in _logs(name, before)}
    for place, named, log in _logs(name, after):  # what stood in the record itself is called so by its host
        old = sources.get(place)
        if old is not None and (named if old.inline else old.source) != log.source:
            yield (
                f"datasets.{name}.copies.{place}.source changes: datamarkers stay, so it must be the same log; flows "
                "halt where it is not"
            )


def _of_application(
    name: str, before: ApplicationConfig | None, after: ApplicationConfig | None, fleet: Fleet
) -> Iterator[str]:
    if after is None:
        if name in fleet.connected:
            yield (
                f"applications.{name} is removed while subscribers are connected: they are let go; its datamarkers stay"
            )
    elif before is not None and before.start != after.start and name in fleet.served:
        yield (
            f"applications.{name}.start changes nothing: its datamarkers count since it was first served; "
            "to start anew, give it another name"
        )


def _of_relays(stored: StoredConfig, wanted: Config) -> Iterator[str]:
    for name, dataset in wanted.datasets.items():
        before = stored.datasets.get(name)
        logs = {place: log for place, _, log in _logs(name, before)} if before is not None else {}
        for place, listed, log in _logs(name, dataset):
            if place not in logs or before is None:
                continue
            _, old_shards, old_tables = what_is_recorded(before, logs[place])
            _, shards, tables = what_is_recorded(dataset, log)
            if old_shards == shards and skips_no_less(old_tables, tables):
                continue
            try:
                mode = relay_of(wanted, *listed.split("/"))
            except ConfigError:  # only its host lists the source: the publisher there makes the same checks
                continue
            if mode == "hold":
                yield (
                    f"the relay of {listed} holds records made with the shards and tables of before: its publisher "
                    "does not start with them. First let every flow reach the end of the log (`wormholectl flows`), "
                    f"then run `wormholectl relay trim {listed} --all`"
                )
            elif mode == "cache":
                yield (
                    f"the relay of {listed} has records made with the shards and tables of before: they are removed, "
                    "and flows that are behind read the log again"
                )


def _of_hosts(wanted: Config, fleet: Fleet) -> Iterator[str]:
    logs = list(named_logs(wanted.datasets))
    homeless = [place for place, log in logs if not log.candidates]
    if homeless and wanted.form is CoordinatorForm.ZOOKEEPER:  # in the embedded form `up` runs them
        yield (
            f"no `host`: {', '.join(homeless)}. Only `wormholectl up` or a publisher started by hand runs such a log, "
            "no monitor of a fleet"
        )
    known = ", ".join(sorted(fleet.hosts)) or "none"
    for host in sorted({host for _, log in logs for host in log.candidates} - set(fleet.hosts)):
        places = ", ".join(place for place, log in logs if host in log.candidates)
        yield f"no monitor runs on host {host}, which should run {places}; hosts with a monitor: {known}"


def _of_sources(stored: StoredConfig, wanted: Config) -> Iterator[str]:
    if wanted.form is not CoordinatorForm.ZOOKEEPER:  # `up` and the static form read this file
        return
    known = dict(named_logs(stored.datasets))
    for listed, log in named_logs(wanted.datasets):
        if (earlier := known.get(listed)) is not None and earlier.inline is not None:
            yield (
                f"ZooKeeper holds the whole source of {listed}, as an earlier release stored it, and gets its "
                "name now: a monitor or "
                "publisher of that release leaves the dataset out then, and one that does not list it ends. First "
                "bring them to this "
                "release and run `wormholectl hosts adopt` on their hosts"
            )
        new = log.candidates
        if earlier is not None and earlier.source == listed:
            new = tuple(host for host in log.hosts if host not in earlier.candidates)
        if log.inline is not None and new:
            yield (
                f"the source of {listed} stays in this file, ZooKeeper gets its name: where the monitor of "
                f'{" or ".join(new)} reads another file, that one needs [sources."{listed}"]'
            )


def _logs(name: str, dataset: DatasetConfig) -> Iterator[tuple[str, str, LogConfig]]:
    """Each log: its place below ``copies``, its name in ``[sources]``, and its settings."""
    for copy, log, settings in dataset.each_log():
        yield f"{copy}.logs.{log}", f"{name}/{copy}/{log}", settings
