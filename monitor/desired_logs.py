"""Computes which logs this host's publishers tail, and the configuration file of each publisher. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from monitor.state import LogKey
from wormhole.config import Config, CoordinatorForm, DatasetConfig, bound
from wormhole.config.one_log import digest, of_one_log

__all__ = ["DIGEST_LENGTH", "DesiredLog", "desired_logs"]

DIGEST_LENGTH = 16
"""Hexadecimal digits of a digest in file names and plans: 64 bits, enough for the configurations of one log."""


@dataclass(frozen=True, slots=True)
class DesiredLog:
    """The configuration file of one publisher, and the beginning of its digest. A new digest requires a restart."""

    config: Config
    digest: str


def desired_logs(
    config: Config, datasets: Mapping[str, DatasetConfig], *, everything: Container[str] | None = None
) -> dict[LogKey, DesiredLog]:
    """The logs for this host, from ``config`` (the settings of this host) and the given ``datasets``.

    ``datasets`` choose among the sources that ``config`` lists. A log runs on each host that it names. A log without
    hosts runs on every host that reads it from its static file. ``everything``: datasets of which every log is
    returned, whatever hosts it names (for `wormholectl up`).
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
