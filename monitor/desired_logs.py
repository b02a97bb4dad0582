"""The logs that this host's publishers tail according to the configuration, and the configuration of each. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from monitor.state import LogKey
from wormhole.config import Config, CoordinatorForm, DatasetConfig, bound
from wormhole.config.one_log import digest, of_one_log

__all__ = ["DIGEST_LENGTH", "DesiredLog", "desired_logs"]

DIGEST_LENGTH = 16
"""Hexadecimal digits of a digest in file names and plans: sixty-four bits distinguish the configurations of one log."""


@dataclass(frozen=True, slots=True)
class DesiredLog:
    """The configuration file of one publisher, and the beginning of its digest. Another digest needs a restart."""

    config: Config
    digest: str


def desired_logs(
    config: Config, datasets: Mapping[str, DatasetConfig], *, everything: Container[str] | None = None
) -> dict[LogKey, DesiredLog]:
    """The logs for this host, from ``config`` (the settings of this host) and the given ``datasets``.

    ``datasets`` choose among the sources that ``config`` lists. A log is for each host that it names. A log that
    names no host is for every host that reads the static file with it. ``everything``: return every log of these
    datasets instead, whatever hosts it names, as for `wormholectl up`.
    """
    whole = bound(config, datasets)
    found = {}
    for dataset, settings in datasets.items():
        for copy, one in settings.copies.items():
            for log, place in one.logs.items():
                if everything is not None:
                    ours = dataset in everything
                elif place.candidates:
                    ours = config.monitor.host_name in place.candidates
                else:
                    ours = config.form is CoordinatorForm.STATIC
                if ours:
                    short_digest = digest(whole, dataset, copy, log)[:DIGEST_LENGTH]
                    narrow = of_one_log(whole, dataset, copy, log)
                    found[LogKey(dataset, copy, log)] = DesiredLog(narrow, short_digest)
    return found
