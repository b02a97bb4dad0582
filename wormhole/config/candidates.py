"""The publishers that may serve one log: their order of preference, and what a host needs to run one of
several. Pure.
"""

from __future__ import annotations

from typing import Final

from wormhole.config.datastores import datastore
from wormhole.config.model import Config, DatasetConfig, LogConfig, named_logs
from wormhole.config.processes import CoordinatorForm
from wormhole.config.report import ConfigReport
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["check_every_log", "has_several", "preference", "refusal_of", "refusal_on_disk"]

_OF_A_HOST: Final = frozenset({"coordinator", "sources", "sinks", "publisher", "monitor"})


def has_several(dataset: DatasetConfig, copy: str, log: str) -> bool:
    """Whether several publishers may serve the log."""
    return dataset.failover_of(copy) is not None or len(dataset.copies[copy].logs[log].candidates) > 1


def preference(dataset: DatasetConfig, copy: str, log: str, host: str) -> int:
    """The rank of the publisher of ``copy`` on ``host`` among those that may serve ``log``: 0 is the preferred one.

    Copies count before hosts. A host that the log does not name comes after all others, unless the log names none.
    """
    failover = dataset.failover_of(copy)
    ranks = [
        (name, candidate)
        for name in ((copy,) if failover is None else failover.copies)
        for candidate in dataset.copies[name].logs[log].candidates or ("",)
    ]
    for one in ((copy, host), (copy, "")):
        if one in ranks:
            return ranks.index(one)
    return len(ranks)


def refusal_of(config: Config) -> Problem:
    """The reason why no host with this configuration may run one of several candidates. The caller puts the key of the
    setting before the text.
    """
    if config.form is not CoordinatorForm.ZOOKEEPER:
        return Problem(
            "needs coordinator.zookeeper, which decides which candidate serves",
            "name it under [coordinator], or leave the log to one host of one copy",
            code="copy-not-ready",
        )
    if config.publisher.markers != "zookeeper":
        return Problem(
            'needs publisher.markers = "zookeeper": other datamarkers stay on the host that wrote them',
            "set it under [publisher] in the file of every host that may serve the log",
            code="copy-not-ready",
        )
    return NO_PROBLEM


def refusal_on_disk(config: Config, log: LogConfig) -> Problem:
    """The reason why this host may not run one of several candidates of the log with the source that it lists. The
    result is empty if the host may run one, or lists no source.
    """
    place = log.inline or (config.sources or {}).get(log.source)
    if place is None or place.pin_folder is not None or not log.hosts or not datastore(log.kind).on_a_disk:
        return NO_PROBLEM
    return Problem(
        "needs pin_folder in its source: what is known of the log has to be on the disk that moves with it",
        "name a folder on the database's disk, in the file of every host that the log lists",
        code="copy-not-ready",
    )


def check_every_log(config: Config, report: ConfigReport) -> None:
    """Report each setting that makes several candidates if the host of the file cannot run one of them.

    A file with datasets and applications alone describes no host.
    """
    refusal = refusal_of(config)
    if not _is_about_a_host(config):
        return
    for dataset in config.datasets.values():
        at = ("datasets", dataset.name)
        if dataset.failover is not None and refusal:
            report.add((*at, "failover"), refusal.text)
        for copy, log, one in dataset.each_log():
            found = refusal or refusal_on_disk(config, one)
            if found and one.hosts and dataset.failover_of(copy) is None:
                report.add((*at, "copies", copy, "logs", log, "hosts"), found.text)


def _is_about_a_host(config: Config) -> bool:
    if config.form is CoordinatorForm.ZOOKEEPER:
        return "publisher" in config.model_fields_set
    if config.form is CoordinatorForm.STATIC or _OF_A_HOST & config.model_fields_set:
        return True
    return any(log.inline is not None for _, log in named_logs(config.datasets))
