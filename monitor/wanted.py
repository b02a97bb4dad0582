"""Which logs this host's publishers shall tail, and the configuration of each. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from monitor.state import LogKey
from wormhole.config import Config, CoordinatorForm, DatasetConfig, bound
from wormhole.config.one_log import digest, of_one_log

__all__ = ["DIGEST_LENGTH", "Wanted", "wanted_logs"]

DIGEST_LENGTH = 16
"""Hexadecimal digits of a digest in file names and plans: sixty-four bits tell the configurations of one log apart."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The configuration file of one publisher, and the beginning of its digest: when that differs, only a restart
    brings it.
    """

    config: Config
    digest: str


def wanted_logs(
    config: Config, datasets: Mapping[str, DatasetConfig], *, everything: Container[str] | None = None
) -> dict[LogKey, Wanted]:
    """The logs for this host, of ``config`` (what holds on this host) with the given ``datasets``.

    They choose among the sources that ``config`` lists. A log is for the host that it names; one that names none is for
    whoever reads the static file that holds it. ``everything``: every log of these datasets instead, whatever host they
    name, as `wormholectl up` has it.
    """
    whole = bound(config, datasets)
    unnamed_too = config.form is CoordinatorForm.STATIC
    found = {}
    for dataset, settings in datasets.items():
        for copy, one in settings.copies.items():
            for log, place in one.logs.items():
                if everything is not None:
                    ours = dataset in everything
                else:
                    ours = place.host == config.monitor.host_name or (not place.host and unnamed_too)
                if ours:
                    narrow = of_one_log(whole, dataset, copy, log)
                    running = digest(whole, dataset, copy, log)[:DIGEST_LENGTH]
                    found[LogKey(dataset, copy, log)] = Wanted(narrow, running)
    return found
