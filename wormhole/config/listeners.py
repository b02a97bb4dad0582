"""Finds addresses that two processes of one host would both use."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Final

from wormhole.config.fields import split_advertised
from wormhole.config.model import Config, named_logs
from wormhole.config.report import ConfigReport

__all__ = ["check_listeners"]

_EVERYWHERE: Final = ("0.0.0.0", "[::]")


def check_listeners(config: Config, report: ConfigReport) -> None:
    """Report fixed ports that two listeners of one host share. Port 0 takes a free one and conflicts with none."""
    names = ("admin_listen", "http_listen", "attach_listen", "token_listen")
    publisher = {name: at for name in names if (at := getattr(config.publisher, name)) is not None}
    listeners = {("monitor", "listen"): config.monitor.listen} | {
        ("publisher", name): address for name, address in publisher.items()
    }
    for (one, address), (other, taken) in itertools.combinations(listeners.items(), 2):
        if _same(address, taken):
            report.add(other, f"conflicts with {'.'.join(one)}: both would listen there on one host", taken)
    host, count = _most_logs_of_a_host(config)
    for name, address in publisher.items():
        if count > 1 and not _is_free(address):
            where = f"on host {host}" if host else "without a `host`, so on one machine"
            text = f"is taken by the first of {count} publishers {where}; port 0 takes a free one for each"
            report.add(("publisher", name), text, address)
    if split_advertised(config.publisher.attach_advertise)[1] and _is_free(config.publisher.attach_listen):
        text = "names a port, and `attach_listen` has none that is fixed: nothing could lead from there to here"
        report.add(("publisher", "attach_advertise"), text, config.publisher.attach_advertise)
    for name, application in config.applications.items():
        for (one_id, address), (other_id, taken) in itertools.combinations(application.subscribers.items(), 2):
            if _same(address, taken):
                at = ("applications", name, "subscribers", other_id)
                report.add(at, f"conflicts with subscriber {one_id}: each needs an address of its own", taken)


def _same(one: str, other: str) -> bool:
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    if _is_free(one) or int(port) != int(other_port):
        return False
    return host == other_host or host in _EVERYWHERE or other_host in _EVERYWHERE


def _is_free(address: str) -> bool:
    return int(address.rpartition(":")[2]) == 0


def _most_logs_of_a_host(config: Config) -> tuple[str, int]:
    logs = [host for _, log in named_logs(config.datasets) for host in log.candidates or ("",)]
    return Counter(logs).most_common(1)[0] if logs else ("", 0)
