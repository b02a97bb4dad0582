"""The nodes in ZooKeeper: path and JSON of each, one tree per root.

:mod:`wormhole.model.record` describes the bounds of the JSON, and the attack that they prevent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import MaxLen
from pydantic import AfterValidator, BeforeValidator, Field

from wormhole.config import check_address
from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.port import (
    TERMS_KEPT,
    WEIGHTS,
    AttachPoint,
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
from wormhole.model.record import (
    Count,
    Host,
    Line,
    Paragraph,
    ProcessId,
    Sentence,
    StoredRecord,
    Text,
    Time,
    Word,
    dumped,
)

__all__ = [
    "Paths",
    "TermRecord",
    "attach_from_json",
    "attach_to_json",
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
    "tokens_from_json",
    "tokens_to_json",
]

_MOST_LOGS: Final = 10_000
_MOST_TOKENS: Final = 100
_MOST_TERMS: Final = 1_000
"""Limit of the terms in a record. It is larger than the number that this release keeps, because a later release may
keep more.
"""


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
        """The nodes directly below the root that exist from the first start on."""
        return (self.applications, self.datasets, self.publishers, self.logs)

    @property
    def config(self) -> str:
        """A node whose version counts the changes of the configuration."""
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

    def tokens(self, application: str) -> str:
        return f"{self.application(application)}/tokens"

    def attach(self, application: str) -> str:
        """The folder of the publishers that subscribers of the application may dial: a node LOG.COPY@HOST for each."""
        return f"{self.application(application)}/attach"

    def markers(self, application: str) -> str:
        return f"{self.application(application)}/markers"

    def marker(self, application: str, shard: str) -> str:
        return f"{self.markers(application)}/{shard}"

    def delivery_counts(self, application: str, shard: str) -> str:
        """The folder of the flow's delivery counts, with a node per page."""
        return f"{self.application(application)}/books/{shard}"

    def publisher(self, dataset: str, copy: str, log: str) -> str:
        return f"{self.publishers}/{dataset}/{copy}/{log}"

    @property
    def logs(self) -> str:
        """The owners and candidates of the logs: a folder for each :class:`~wormhole.coordination.port.LogGroup`."""
        return f"{self.root}/logs"

    def log(self, group: LogGroup) -> str:
        return f"{self.logs}/{group.dataset}/{group.group}/{group.log}"

    def owner(self, group: LogGroup) -> str:
        return f"{self.log(group)}/owner"

    def claims(self, group: LogGroup) -> str:
        """The folder of the owner's claim: one node, which is made and deleted together with the owner's node."""
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
        """The state ``name`` that the log's source stores about its servers."""
        return f"{self.log(group)}/state/{name}"


@dataclass(slots=True, frozen=True)
class TermRecord:
    """The node that is written each time a log is taken.

    ``claim``: the name of the node below :meth:`Paths.claims` that was made with it. It shows which process took the
    log last. A number or the node's version cannot show it, because they may repeat after ZooKeeper lost its data.
    ``terms``: the last :data:`~wormhole.coordination.port.TERMS_KEPT`, oldest first.
    """

    number: int
    claim: str
    terms: tuple[Term, ...]


def _address_unless_hidden(value: str) -> str:
    return check_address(value) if value else ""


def _page(value: str) -> str:
    try:
        if value:
            check_address(page_address(value))
    except ValueError:
        raise ValueError('must be a page "http://host:port/" or "https://host:port/"') from None
    return value


def _newest_terms(given: object) -> object:
    if not isinstance(given, list) or len(given) > _MOST_TERMS:
        raise ValueError(f"must be a list of at most {_MOST_TERMS:,} objects")
    return given[-TERMS_KEPT:]


# ``host:port`` and nothing else that gRPC would dial, such as the path of a socket.
_Address = Annotated[Host, AfterValidator(check_address)]
_AddressUnlessHidden = Annotated[Host, AfterValidator(_address_unless_hidden)]
_Page = Annotated[Host, AfterValidator(_page)]


class _SubscriberNode(StoredRecord):
    address: _Address
    weight: Annotated[float, Field(ge=WEIGHTS[0], le=WEIGHTS[1])] = 1.0
    started: Time = 0.0
    user: Annotated[int, Field(default=None, ge=0, le=1 << 32)]
    """A node of an earlier release has none."""


class _PublisherNode(StoredRecord):
    host: Host
    pid: ProcessId
    address: _AddressUnlessHidden
    started: Time = 0.0
    owner: Text = ""
    """A node of an earlier release has none."""


class _AttachNode(StoredRecord):
    address: _AddressUnlessHidden
    token_address: _AddressUnlessHidden


class _OwnerNode(_PublisherNode):
    copy_: Annotated[Word, Field(alias="copy")]


class _CandidateNode(StoredRecord):
    pid: ProcessId
    address: _AddressUnlessHidden
    started: Time = 0.0
    rank: ProcessId
    server: Host
    lacking: Text
    ready: bool
    waits: Paragraph
    hint: Paragraph
    since: Time = 0.0
    promotable: bool = False


class _TermNode(StoredRecord):
    number: Count
    copy_: Annotated[Word, Field(alias="copy")]
    host: Host
    pid: ProcessId
    server: Host
    since: Time = 0.0
    why: Sentence


class _TermsNode(StoredRecord):
    number: Count
    claim: Word
    terms: Annotated[list[_TermNode], BeforeValidator(_newest_terms)]


class _MoveNode(StoredRecord):
    to: Sentence
    by: Line
    at: Time = 0.0


class _FlowNode(StoredRecord):
    owner: Text
    subscriber: Annotated[str, MaxLen(200)]
    epoch: Count
    state: Word
    process: Annotated[str, MaxLen(255)] = ""


class _MonitorNode(StoredRecord):
    pid: ProcessId
    address: _Page
    started: Time = 0.0
    publishers: Annotated[dict[str, str], Field(max_length=_MOST_LOGS)]


class _HostNode(StoredRecord):
    drained: bool
    by: Line
    at: Time = 0.0


class _TokenNode(StoredRecord):
    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    created: Time = 0.0
    expires: Time = 0.0


class _TokensNode(StoredRecord):
    tokens: Annotated[list[_TokenNode], MaxLen(_MOST_TOKENS)]


class _HistoryNode(StoredRecord):
    at: Time = 0.0
    who: Text
    what: Text
    target: Text
    before: Text
    after: Text


def subscriber_to_json(info: SubscriberInfo) -> bytes:
    """The node of a live subscriber; application and id are in its path."""
    fields = _SubscriberNode.fields_of(info)
    if info.user is None:
        del fields["user"]
    return dumped(fields)


def subscriber_from_json(application: str, name: str, data: bytes, where: str) -> SubscriberInfo:
    """Inverse of :func:`subscriber_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return SubscriberInfo(application, name, **_SubscriberNode.read(data, where).fields())


def publisher_to_json(info: PublisherInfo) -> bytes:
    """The node of a live publisher; dataset, copy and log are in its path."""
    return _publisher_to_json(_PublisherNode, info)


def publisher_from_json(dataset: str, copy: str, log: str, data: bytes, where: str) -> PublisherInfo:
    """Inverse of :func:`publisher_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return PublisherInfo(dataset, copy, log, **_PublisherNode.read(data, where).fields())


def owner_to_json(info: PublisherInfo) -> bytes:
    """The node of a log's owner; dataset and log are in its path."""
    return _publisher_to_json(_OwnerNode, info)


def owner_from_json(group: LogGroup, data: bytes, where: str) -> PublisherInfo:
    """Inverse of :func:`owner_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return PublisherInfo(group.dataset, log=group.log, **_OwnerNode.read(data, where).fields())


def _publisher_to_json(form: type[_PublisherNode], info: PublisherInfo) -> bytes:
    fields = form.fields_of(info)
    if not info.owner:
        del fields["owner"]
    return dumped(fields)


def candidate_to_json(info: CandidateInfo) -> bytes:
    """The node of a candidate; copy and host are in its name."""
    return dumped(_CandidateNode.fields_of(info))


def candidate_from_json(name: str, data: bytes, where: str) -> CandidateInfo:
    """Inverse of :func:`candidate_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    copy, at, host = name.partition("@")
    if not at:
        raise ConfigError(f"{where}: a candidate is called COPY@HOST", code="record-invalid")
    return CandidateInfo(copy, host, **_CandidateNode.read(data, where).fields())


def term_to_json(record: TermRecord) -> bytes:
    """The node of a log's terms."""
    return dumped({**_TermsNode.fields_of(record), "terms": [_TermNode.fields_of(term) for term in record.terms]})


def term_from_json(data: bytes, where: str) -> TermRecord:
    """Inverse of :func:`term_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    found = _TermsNode.read(data, where)
    return TermRecord(found.number, found.claim, tuple(Term(**term.fields()) for term in found.terms))


def move_to_json(request: MoveRequest) -> bytes:
    """The node of an operator's request for a log."""
    return dumped(_MoveNode.fields_of(request))


def move_from_json(data: bytes, where: str) -> MoveRequest:
    """Inverse of :func:`move_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return MoveRequest(**_MoveNode.read(data, where).fields())


def flow_to_json(record: FlowRecord) -> bytes:
    """The node of a flow; application and shard are in its path."""
    fields = _FlowNode.fields_of(record)
    if not record.process:
        del fields["process"]
    return dumped(fields)


def flow_from_json(data: bytes, where: str) -> FlowRecord:
    """Inverse of :func:`flow_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return FlowRecord(**_FlowNode.read(data, where).fields())


def monitor_to_json(info: MonitorInfo) -> bytes:
    """The node of a live monitor; its host is in its path."""
    return dumped({**_MonitorNode.fields_of(info), "publishers": dict(info.publishers)})


def monitor_from_json(host: str, data: bytes, where: str) -> MonitorInfo:
    """Inverse of :func:`monitor_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return MonitorInfo(host, **_MonitorNode.read(data, where).fields())


def host_to_json(request: HostRequest) -> bytes:
    """The node of an operator's request for a host; the host is in its path."""
    return dumped(_HostNode.fields_of(request))


def host_from_json(data: bytes, where: str) -> HostRequest:
    """Inverse of :func:`host_to_json`; an empty node requests nothing.

    Raises :class:`~wormhole.model.errors.ConfigError` that names the node.
    """
    return HostRequest(**_HostNode.read(data, where).fields()) if data else HostRequest()


def history_to_json(entry: HistoryEntry) -> bytes:
    """The node of a change."""
    return dumped(history_fields(entry))


def history_fields(entry: HistoryEntry) -> dict[str, Any]:
    """The fields of a change in JSON."""
    return _HistoryNode.fields_of(entry)


def history_from_json(data: bytes, where: str) -> HistoryEntry:
    """Inverse of :func:`history_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    return HistoryEntry(**_HistoryNode.read(data, where).fields())


def tokens_to_json(tokens: Iterable[AccessToken]) -> bytes:
    """The node of an application's tokens; the application is in its path."""
    return dumped({"tokens": [_TokenNode.fields_of(token) for token in tokens]})


def tokens_from_json(data: bytes, where: str) -> tuple[AccessToken, ...]:
    """Inverse of :func:`tokens_to_json`; an empty node has none.

    Raises :class:`~wormhole.model.errors.ConfigError` that names the node.
    """
    if not data:
        return ()
    found = _TokensNode.read(data, where, "delete it, and make new tokens: `wormholectl tokens create`")
    return tuple(AccessToken(**token.fields()) for token in found.tokens)


def attach_to_json(point: AttachPoint) -> bytes:
    """The node of a publisher that subscribers may dial; log, copy and host are in its name."""
    return dumped(_AttachNode.fields_of(point))


def attach_from_json(name: str, data: bytes, where: str) -> AttachPoint:
    """Inverse of :func:`attach_to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
    log, _, publisher = name.partition(".")
    return AttachPoint(log, publisher, **_AttachNode.read(data, where).fields())
