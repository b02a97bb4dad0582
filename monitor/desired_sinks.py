"""Computes which sinks this host's monitor runs, and which changes require a restart of a sink. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from monitor.desired_logs import DIGEST_LENGTH
from monitor.state import SinkKey
from wormhole import __version__
from wormhole.config import Config, CoordinatorForm, plain

__all__ = ["DesiredSink", "desired_sinks"]


@dataclass(frozen=True, slots=True)
class DesiredSink:
    """One sink. ``config``: the file that defines it. ``coordinator``: the file that names the coordination service at
    which the sink registers. ``digest``: a new digest requires a restart.
    """

    config: Path
    coordinator: str
    url: str
    application: str
    digest: str


def desired_sinks(config: Config, file: Path, coordinator: str = "") -> dict[SinkKey, DesiredSink]:
    """The sinks that ``config``, read from ``file``, names in ``monitor.sinks``. ``coordinator``: see
    :class:`DesiredSink`; empty: ``file`` is used.
    """
    found = {}
    for name in config.monitor.sinks:
        table = config.sinks[name]
        application = table.application or name
        # In the static form the sink reads its application from the file when it starts.
        known = config.applications.get(application) if config.form is CoordinatorForm.STATIC else None
        whole = [
            __version__,
            str(file),
            coordinator,
            table.model_dump(mode="json"),
            config.coordinator.model_dump(mode="json"),
            None if config.tls is None else config.tls.model_dump(mode="json"),
            config.insecure,
            None if known is None else plain(known),
        ]
        digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]
        path = file.absolute()
        found[SinkKey(name)] = DesiredSink(path, coordinator or str(path), table.url, application, digest)
    return found
