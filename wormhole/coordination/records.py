"""The nodes in ZooKeeper: path and JSON of each, one tree per root."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from wormhole.config import check_address
from wormhole.coordination.port import (
    WEIGHTS,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    MonitorInfo,
    PublisherInfo,
    SubscriberInfo,
)
from wormhole.coordination.rules import page_address
from wormhole.model.errors import ConfigError
from wormhole.model.json_input import read_json

__all__ = [
    "Paths",
    "flow_from_json",
    "history_from_json",
    "host_from_json",
    "monitor_from_json",
    "monitor_to_json",
    "publisher_from_json",
    "publisher_to_json",
    "record_to_json",
    "subscriber_from_json",
    "subscriber_to_json",
]

_NUMBERS: Final = {"weight": 1.0, "started": 0.0, "at": 0.0}
_BOUNDS: Final = {"weight": WEIGHTS, "started": (0.0, 1e18), "at": (0.0, 1e18)}
_SHOWN: Final = 40
_LONGEST: Final = {"address": 300, "host": 300, "subscriber": 200, "state": 100}
"""Characters of a text; of others :data:`_LONGEST_TEXT`."""
_LONGEST_TEXT: Final = 20_000
_LARGEST: Final = 512 << 10
"""Bytes of a record that is no dataset or application: a change of the history whose texts are full, each character
escaped, fits.
"""
_MOST_LOGS: Final = 10_000


@dataclass(slots=True, frozen=True)
class Paths:
    """Every path below one root (``""`` or ``/name``)."""

    root: str

    @property
    def access(self) -> str:
        """The identities: :mod:`wormhole.coordination.access`."""
        return f"{self.root}/access"

    @property
    def applications(self) -> str:
        return f"{self.root}/applications"

    @property
    def datasets(self) -> str:
        return f"{self.root}/datasets"

    @property
    def publishers(self) -> str:
        return f"{self.root}/publishers"

    @property
    def top(self) -> tuple[str, ...]:
        """What is there from the first start on, directly below the root."""
        return (self.applications, self.datasets, self.publishers)

    @property
    def config(self) -> str:
        """Its version counts the changes of the configuration."""
        return f"{self.root}/config"

    @property
    def history(self) -> str:
        return f"{self.root}/history"

    @property
    def hosts(self) -> str:
        return f"{self.root}/hosts"

    def host(self, name: str) -> str:
        return f"{self.hosts}/{name}"

    def monitor(self, host: str) -> str:
        return f"{self.host(host)}/monitor"

    def application(self, name: str) -> str:
        return f"{self.applications}/{name}"

    def dataset(self, name: str) -> str:
        return f"{self.datasets}/{name}"

    def subscribers(self, application: str) -> str:
        return f"{self.application(application)}/subscribers"

    def subscriber(self, application: str, name: str) -> str:
        return f"{self.subscribers(application)}/{name}"

    def flows(self, application: str) -> str:
        return f"{self.application(application)}/flows"

    def flow(self, application: str, shard: str) -> str:
        return f"{self.flows(application)}/{shard}"

    def markers(self, application: str) -> str:
        return f"{self.application(application)}/markers"

    def marker(self, application: str, shard: str) -> str:
        return f"{self.markers(application)}/{shard}"

    def delivery_counts(self, application: str, shard: str) -> str:
        """Below it a node per page."""
        return f"{self.application(application)}/books/{shard}"

    def publisher(self, dataset: str, copy: str, log: str) -> str:
        return f"{self.publishers}/{dataset}/{copy}/{log}"


def subscriber_to_json(info: SubscriberInfo) -> bytes:
    """The node of a live subscriber; application and id are in its path."""
    fields = {"address": info.address, "weight": info.weight, "started": info.started}
    return _dump(fields if info.user is None else {**fields, "user": info.user})


def subscriber_from_json(application: str, name: str, data: bytes, where: str) -> SubscriberInfo:
    """Inverse of :func:`subscriber_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    return SubscriberInfo(
        application,
        name,
        _address(given, where),
        _number(given, "weight", where),
        _number(given, "started", where),
        _whole(given, "user", where) if "user" in given else None,  # a node of an earlier release has none
    )


def publisher_to_json(info: PublisherInfo) -> bytes:
    """The node of a live publisher; dataset, copy and log are in its path."""
    fields = {"host": info.host, "pid": info.pid, "address": info.address, "started": info.started}
    return _dump({**fields, "owner": info.owner} if info.owner else fields)


def publisher_from_json(dataset: str, copy: str, log: str, data: bytes, where: str) -> PublisherInfo:
    """Inverse of :func:`publisher_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    host, address = _text(given, "host", where), _address(given, where, may_be_hidden=True)
    pid, started = _whole(given, "pid", where), _number(given, "started", where)
    owner = _text(given, "owner", where) if "owner" in given else ""  # a node of an earlier release has none
    return PublisherInfo(dataset, copy, log, host, pid, address, started, owner)


def record_to_json(record: FlowRecord | HostRequest | HistoryEntry) -> bytes:
    """The node of a record whose path says nothing about it."""
    return _dump(asdict(record))


def flow_from_json(data: bytes, where: str) -> FlowRecord:
    """Inverse of :func:`record_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    owner, subscriber, state = (_text(given, key, where) for key in ("owner", "subscriber", "state"))
    return FlowRecord(owner, subscriber, _whole(given, "epoch", where), state)


def monitor_to_json(info: MonitorInfo) -> bytes:
    """The node of a live monitor; its host is in its path."""
    plain = {"pid": info.pid, "address": info.address, "started": info.started, "publishers": dict(info.publishers)}
    return _dump(plain)


def monitor_from_json(host: str, data: bytes, where: str) -> MonitorInfo:
    """Inverse of :func:`monitor_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    phases = given.get("publishers")
    if (
        not isinstance(phases, dict)
        or len(phases) > _MOST_LOGS
        or not all(isinstance(phase, str) for phase in phases.values())
    ):
        raise ConfigError(f"{where}: publishers must be an object of at most {_MOST_LOGS:,} texts")
    pid, page = _whole(given, "pid", where), _page(given, where)
    return MonitorInfo(host, pid, page, _number(given, "started", where), phases)


def host_from_json(data: bytes, where: str) -> HostRequest:
    """Inverse of :func:`record_to_json`; an empty node wants nothing.

    Raises :class:`~wormhole.model.errors.ConfigError` that names the node.
    """
    if not data:
        return HostRequest()
    given = _load(data, where)
    drained = given.get("drained")
    if not isinstance(drained, bool):
        raise ConfigError(f"{where}: drained must be true or false, not {drained!r}")
    return HostRequest(drained, _text(given, "by", where), _number(given, "at", where))


def history_from_json(data: bytes, where: str) -> HistoryEntry:
    """Inverse of :func:`record_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    texts = (_text(given, key, where) for key in ("who", "what", "target", "before", "after"))
    return HistoryEntry(_number(given, "at", where), *texts)


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _load(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > _LARGEST:
        raise ConfigError(f"{where}: has {len(data):,} bytes; such a record has at most {_LARGEST:,}")
    try:
        value = read_json(data)
    except ValueError as error:
        raise ConfigError(f"{where}: no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must hold a JSON object")
    return value


def _text(given: dict[str, Any], key: str, where: str) -> str:
    value = given.get(key)
    longest = _LONGEST.get(key, _LONGEST_TEXT)
    if not isinstance(value, str) or len(value) > longest:
        raise ConfigError(
            f"{where}: {key} must be a text of at most {longest:,} characters, not {str(value)[:_SHOWN]!r}"
        )
    return value


def _address(given: dict[str, Any], where: str, *, may_be_hidden: bool = False) -> str:
    """``host:port`` and nothing else that gRPC would dial, such as the path of a socket."""
    value = _text(given, "address", where)
    if value or not may_be_hidden:
        try:
            check_address(value)
        except ValueError as error:
            raise ConfigError(f"{where}: address {error}") from None
    return value


def _page(given: dict[str, Any], where: str) -> str:
    """``http://host:port/`` or ``https://host:port/``, or empty for none."""
    value = _text(given, "address", where)
    try:
        if value:
            check_address(page_address(value))
    except ValueError:
        raise ConfigError(
            f'{where}: address must be a page "http://host:port/" or "https://host:port/", not {value[:_SHOWN]!r}'
        ) from None
    return value


def _whole(given: dict[str, Any], key: str, where: str) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{where}: {key} must be a whole number, not {str(value)[:_SHOWN]!r}")
    return value


def _number(given: dict[str, Any], key: str, where: str) -> float:
    value, (least, most) = given.get(key, _NUMBERS[key]), _BOUNDS[key]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{where}: {key} must be a number from {least:g} to {most:g}, not {str(value)[:_SHOWN]}")
    return float(value)
