"""The nodes in ZooKeeper: path and JSON of each, one tree per root.

Each field is written and read under a name that stands here, whatever its attribute is called.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from wormhole.config import check_address
from wormhole.coordination.port import (
    TERMS_KEPT,
    WEIGHTS,
    CandidateInfo,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    LogGroup,
    MonitorInfo,
    MoveRequest,
    PublisherInfo,
    SubscriberInfo,
    Term,
)
from wormhole.coordination.rules import page_address
from wormhole.model.errors import ConfigError
from wormhole.model.json_input import read_json

__all__ = [
    "LARGEST_TERM",
    "Paths",
    "TermRecord",
    "candidate_from_json",
    "candidate_to_json",
    "flow_from_json",
    "flow_to_json",
    "history_fields",
    "history_from_json",
    "history_to_json",
    "host_from_json",
    "host_to_json",
    "monitor_from_json",
    "monitor_to_json",
    "move_from_json",
    "move_to_json",
    "owner_from_json",
    "owner_to_json",
    "publisher_from_json",
    "publisher_to_json",
    "subscriber_from_json",
    "subscriber_to_json",
    "term_from_json",
    "term_to_json",
]

_NUMBERS: Final = {"weight": 1.0, "started": 0.0, "at": 0.0, "since": 0.0}
_LAST_S: Final = 253_402_214_400
"""The last day of the year 9999: a later time cannot be shown."""
_BOUNDS: Final = {"weight": WEIGHTS, **dict.fromkeys(("started", "at", "since"), (0.0, _LAST_S))}
_LARGEST_COUNT: Final = 1 << 62
"""The largest term or epoch. Both are counted up in 64 bits on the wire, so there is room for more."""
LARGEST_TERM: Final = _LARGEST_COUNT
_LARGEST_ID: Final = (1 << 31) - 1
_SHOWN: Final = 40
_LONGEST: Final = {
    "address": 300,
    "host": 300,
    "subscriber": 200,
    "state": 100,
    "copy": 100,
    "claim": 100,
    "server": 300,
    "why": 500,
    "waits": 2_000,
    "hint": 2_000,
    "to": 500,
    "by": 1_000,
}
"""Characters of a text; of others :data:`_LONGEST_TEXT`."""
_LONGEST_TEXT: Final = 20_000
_LARGEST: Final = 512 << 10
"""Bytes of a record that is no dataset or application: a change of the history whose texts are full, each character
escaped, fits.
"""
_MOST_LOGS: Final = 10_000
_MOST_TERMS: Final = 1_000
"""Terms of a log that are read from a record: a later release may keep more of them."""


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
        return (self.applications, self.datasets, self.publishers, self.logs)

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

    @property
    def logs(self) -> str:
        """Who owns each log, and who could: a folder for each :class:`~wormhole.coordination.port.LogGroup`."""
        return f"{self.root}/logs"

    def log(self, group: LogGroup) -> str:
        return f"{self.logs}/{group.dataset}/{group.group}/{group.log}"

    def owner(self, group: LogGroup) -> str:
        return f"{self.log(group)}/owner"

    def claims(self, group: LogGroup) -> str:
        """Below it one node, which is made and deleted together with the owner's."""
        return f"{self.log(group)}/claims"

    def claim(self, group: LogGroup, name: str) -> str:
        return f"{self.claims(group)}/{name}"

    def term(self, group: LogGroup) -> str:
        return f"{self.log(group)}/term"

    def candidates(self, group: LogGroup) -> str:
        return f"{self.log(group)}/candidates"

    def candidate(self, group: LogGroup, name: str) -> str:
        return f"{self.candidates(group)}/{name}"

    def move(self, group: LogGroup) -> str:
        return f"{self.log(group)}/move"

    def log_state(self, group: LogGroup, name: str) -> str:
        """What the log's source knows of the servers, under ``name``."""
        return f"{self.log(group)}/state/{name}"


@dataclass(slots=True, frozen=True)
class TermRecord:
    """The node that is written each time a log is taken.

    ``claim``: the name of the node below :meth:`Paths.claims` that was made with it: it shows who took the log last,
    where a number or the node's version may come again after ZooKeeper lost its data. ``terms``: the last
    :data:`~wormhole.coordination.port.TERMS_KEPT`, oldest first.
    """

    number: int
    claim: str
    terms: tuple[Term, ...]


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
        _whole(given, "user", where, 0, 1 << 32) if "user" in given else None,  # a node of an earlier release has none
    )


def publisher_to_json(info: PublisherInfo) -> bytes:
    """The node of a live publisher; dataset, copy and log are in its path."""
    return _dump(_publisher_fields(info))


def publisher_from_json(dataset: str, copy: str, log: str, data: bytes, where: str) -> PublisherInfo:
    """Inverse of :func:`publisher_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    host, address = _text(given, "host", where), _address(given, where, may_be_hidden=True)
    pid, started = _pid(given, where), _number(given, "started", where)
    owner = _text(given, "owner", where) if "owner" in given else ""  # a node of an earlier release has none
    return PublisherInfo(dataset, copy, log, host, pid, address, started, owner)


def owner_to_json(info: PublisherInfo) -> bytes:
    """The node of a log's owner; dataset and log are in its path."""
    return _dump({**_publisher_fields(info), "copy": info.copy})


def owner_from_json(group: LogGroup, data: bytes, where: str) -> PublisherInfo:
    """Inverse of :func:`owner_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    copy = _text(_load(data, where), "copy", where)
    return publisher_from_json(group.dataset, copy, group.log, data, where)


def candidate_to_json(info: CandidateInfo) -> bytes:
    """The node of a candidate; copy and host are in its name. A text that is too long is cut."""
    fields = {
        "pid": info.pid,
        "address": info.address,
        "started": info.started,
        "rank": info.rank,
        "server": info.server,
        "lacking": info.lacking,
        "ready": info.ready,
        "waits": info.waits,
        "hint": info.hint,
        "since": info.since,
        "promotable": info.promotable,
    }
    return _dump({key: _cut(value, key) if isinstance(value, str) else value for key, value in fields.items()})


def candidate_from_json(name: str, data: bytes, where: str) -> CandidateInfo:
    """Inverse of :func:`candidate_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    copy, at, host = name.partition("@")
    if not at:
        raise ConfigError(f"{where}: a candidate is called COPY@HOST", code="record-invalid")
    ready = given.get("ready")
    if not isinstance(ready, bool):
        raise ConfigError(f"{where}: ready must be true or false, not {str(ready)[:_SHOWN]!r}", code="record-invalid")
    return CandidateInfo(
        copy,
        host,
        _pid(given, where),
        _address(given, where, may_be_hidden=True),
        _number(given, "started", where),
        _whole(given, "rank", where, 0, _LARGEST_ID),
        _text(given, "server", where),
        _text(given, "lacking", where),
        ready,
        _text(given, "waits", where),
        _text(given, "hint", where),
        _number(given, "since", where),
        given.get("promotable") is True,
    )


def term_to_json(record: TermRecord) -> bytes:
    """The node of a log's terms. A text that is too long is cut."""
    terms = [
        {
            "number": term.number,
            "copy": term.copy,
            "host": term.host,
            "pid": term.pid,
            "server": _cut(term.server, "server"),
            "since": term.since,
            "why": _cut(term.why, "why"),
        }
        for term in record.terms
    ]
    return _dump({"number": record.number, "claim": record.claim, "terms": terms})


def term_from_json(data: bytes, where: str) -> TermRecord:
    """Inverse of :func:`term_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    terms = given.get("terms")
    if not isinstance(terms, list) or len(terms) > _MOST_TERMS or not all(isinstance(term, dict) for term in terms):
        raise ConfigError(f"{where}: terms must be a list of at most {_MOST_TERMS:,} objects", code="record-invalid")
    known = tuple(_term(term, where) for term in terms[-TERMS_KEPT:])
    return TermRecord(_term_number(given, where), _text(given, "claim", where), known)


def move_to_json(request: MoveRequest) -> bytes:
    """The node of what an operator requested of a log."""
    return _dump({"to": request.to, "by": request.by, "at": request.at})


def move_from_json(data: bytes, where: str) -> MoveRequest:
    """Inverse of :func:`move_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    return MoveRequest(_text(given, "to", where), _text(given, "by", where), _number(given, "at", where))


def flow_to_json(record: FlowRecord) -> bytes:
    """The node of a flow; application and shard are in its path."""
    return _dump({"owner": record.owner, "subscriber": record.subscriber, "epoch": record.epoch, "state": record.state})


def flow_from_json(data: bytes, where: str) -> FlowRecord:
    """Inverse of :func:`flow_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    owner, subscriber, state = (_text(given, key, where) for key in ("owner", "subscriber", "state"))
    return FlowRecord(owner, subscriber, _whole(given, "epoch", where, 0, _LARGEST_COUNT), state)


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
        raise ConfigError(
            f"{where}: publishers must be an object of at most {_MOST_LOGS:,} texts", code="record-invalid"
        )
    pid, page = _pid(given, where), _page(given, where)
    return MonitorInfo(host, pid, page, _number(given, "started", where), phases)


def host_to_json(request: HostRequest) -> bytes:
    """The node of what an operator requested of a host; the host is in its path."""
    return _dump({"drained": request.drained, "by": request.by, "at": request.at})


def host_from_json(data: bytes, where: str) -> HostRequest:
    """Inverse of :func:`host_to_json`; an empty node wants nothing.

    Raises :class:`~wormhole.model.errors.ConfigError` that names the node.
    """
    if not data:
        return HostRequest()
    given = _load(data, where)
    drained = given.get("drained")
    if not isinstance(drained, bool):
        raise ConfigError(f"{where}: drained must be true or false, not {drained!r}", code="record-invalid")
    return HostRequest(drained, _text(given, "by", where), _number(given, "at", where))


def history_to_json(entry: HistoryEntry) -> bytes:
    """The node of a change."""
    return _dump(history_fields(entry))


def history_fields(entry: HistoryEntry) -> dict[str, Any]:
    """A change as JSON has it."""
    return {
        "at": entry.at,
        "who": entry.who,
        "what": entry.what,
        "target": entry.target,
        "before": entry.before,
        "after": entry.after,
    }


def history_from_json(data: bytes, where: str) -> HistoryEntry:
    """Inverse of :func:`history_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    given = _load(data, where)
    texts = (_text(given, key, where) for key in ("who", "what", "target", "before", "after"))
    return HistoryEntry(_number(given, "at", where), *texts)


def _publisher_fields(info: PublisherInfo) -> dict[str, Any]:
    fields = {"host": info.host, "pid": info.pid, "address": info.address, "started": info.started}
    return {**fields, "owner": info.owner} if info.owner else fields


def _term(given: dict[str, Any], where: str) -> Term:
    number, pid = _term_number(given, where), _pid(given, where)
    copy, host, server, why = (_text(given, key, where) for key in ("copy", "host", "server", "why"))
    return Term(number, copy, host, pid, server, _number(given, "since", where), why)


def _cut(text: str, key: str) -> str:
    """``text``, no longer than what is read of ``key``."""
    longest = _LONGEST.get(key, _LONGEST_TEXT)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _load(data: bytes, where: str) -> dict[str, Any]:
    if len(data) > _LARGEST:
        raise ConfigError(
            f"{where}: has {len(data):,} bytes; such a record has at most {_LARGEST:,}", code="record-invalid"
        )
    try:
        value = read_json(data)
    except ValueError as error:
        raise ConfigError(f"{where}: no valid JSON: {error}", code="record-invalid") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must hold a JSON object", code="record-invalid")
    return value


def _text(given: dict[str, Any], key: str, where: str) -> str:
    value = given.get(key)
    longest = _LONGEST.get(key, _LONGEST_TEXT)
    if not isinstance(value, str) or len(value) > longest:
        raise ConfigError(
            f"{where}: {key} must be a text of at most {longest:,} characters, not {str(value)[:_SHOWN]!r}",
            code="record-invalid",
        )
    return value


def _address(given: dict[str, Any], where: str, *, may_be_hidden: bool = False) -> str:
    """``host:port`` and nothing else that gRPC would dial, such as the path of a socket."""
    value = _text(given, "address", where)
    if value or not may_be_hidden:
        try:
            check_address(value)
        except ValueError as error:
            raise ConfigError(f"{where}: address {error}", code="record-invalid") from None
    return value


def _page(given: dict[str, Any], where: str) -> str:
    """``http://host:port/`` or ``https://host:port/``, or empty for none."""
    value = _text(given, "address", where)
    try:
        if value:
            check_address(page_address(value))
    except ValueError:
        raise ConfigError(
            f'{where}: address must be a page "http://host:port/" or "https://host:port/", not {value[:_SHOWN]!r}',
            code="record-invalid",
        ) from None
    return value


def _pid(given: dict[str, Any], where: str) -> int:
    return _whole(given, "pid", where, 0, _LARGEST_ID)


def _term_number(given: dict[str, Any], where: str) -> int:
    return _whole(given, "number", where, 0, LARGEST_TERM)


def _whole(given: dict[str, Any], key: str, where: str, least: int, most: int) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(
            f"{where}: {key} must be a whole number from {least} to {most}, not {str(value)[:_SHOWN]!r}",
            code="record-invalid",
        )
    return value


def _number(given: dict[str, Any], key: str, where: str) -> float:
    value, (least, most) = given.get(key, _NUMBERS[key]), _BOUNDS[key]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(
            f"{where}: {key} must be a number from {least:g} to {most:g}, not {str(value)[:_SHOWN]}",
            code="record-invalid",
        )
    return float(value)
