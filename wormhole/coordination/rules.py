"""The checks that every form of coordination makes before a process registers, and the errors of a refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

from wormhole.config import ApplicationConfig
from wormhole.coordination.port import (
    AttachPoint,
    CandidateInfo,
    HistoryEntry,
    LogGroup,
    MonitorInfo,
    PublisherInfo,
    SubscriberInfo,
    Term,
)
from wormhole.host.tls import is_loopback
from wormhole.model.errors import ConfigError, CoordinationLost, Retryable

__all__ = [
    "REPLACED_WHEN_TAKEN",
    "TAKEN_AGAIN",
    "all_loopback",
    "as_seen_by_others",
    "attach_taken",
    "candidate_taken",
    "changed_meanwhile",
    "check_subscriber",
    "host_taken",
    "is_predecessor",
    "log_taken",
    "no_election",
    "no_monitor",
    "not_owned",
    "nowhere_to_publish",
    "page_address",
    "shortened",
    "subscriber_taken",
    "tokens_changed",
    "who",
]

TAKEN_AGAIN: Final = "taken again by the same process, whose entry was lost with its session"
"""The reason for a term if no other process owned the log since the previous one."""

REPLACED_WHEN_TAKEN: Final = "nothing: the next publisher that takes the log replaces it"
"""The next step for an invalid node that is written each time a log is taken."""

_Info = TypeVar("_Info", PublisherInfo, CandidateInfo, MonitorInfo)
_LONGEST_TEXT: Final = 8000  # characters of one field: the history is bounded, so are its entries
_PAGE: Final = re.compile(r"https?://([^/]+)/")


def all_loopback(hosts: Iterable[str]) -> bool:
    """Whether every ``host:port`` of a coordination service is on loopback. If so, all its users are on this
    machine.
    """
    return all(map(is_loopback, hosts))


def check_subscriber(info: SubscriberInfo, application: ApplicationConfig, *, service_on_loopback: bool) -> None:
    """Raise :class:`~wormhole.model.errors.ConfigError` for a subscriber that is not allowed or cannot be dialled."""
    if not application.allows(info.id):
        raise ConfigError(
            f"subscriber {info.id!r} is not in the allow list of application {info.application}",
            hint=f"add it to applications.{info.application}.allow, now {', '.join(application.allow)}",
            code="not-permitted",
        )
    if is_loopback(info.address) and not service_on_loopback:
        raise ConfigError(
            f"subscriber {info.id!r} advertises {info.address}, which no other machine can reach, in a ZooKeeper that "
            "other "
            "machines use",
            hint="set `advertise` (WORMHOLE_ADVERTISE) to an address that the publishers can dial",
        )


def as_seen_by_others(info: _Info, address: str, *, service_on_loopback: bool) -> _Info:
    """``info`` without its address, if other machines cannot use ``address``, the ``host:port`` in it."""
    if address and is_loopback(address) and not service_on_loopback:
        return replace(info, address="")
    return info


def page_address(page: str) -> str:
    """``host:port`` of a status page ``http://host:port/`` or ``https://host:port/``.

    Raises ``ValueError`` for anything else.
    """
    found = _PAGE.fullmatch(page)
    if found is None:
        raise ValueError(f"{page!r} is no page")
    return found[1]


def shortened(entry: HistoryEntry) -> HistoryEntry:
    """``entry`` with every text cut to the length that the history keeps. A cut text ends with the number of missing
    characters.
    """
    texts = (_short(text) for text in (entry.who, entry.what, entry.target, entry.before, entry.after))
    return HistoryEntry(entry.at, *texts)


def _short(text: str) -> str:
    left_out = len(text) - _LONGEST_TEXT
    return f"{text[:_LONGEST_TEXT]}... ({left_out} characters more)" if left_out > 0 else text


def log_taken(info: PublisherInfo, by: str) -> Retryable:
    """The error if the log has a live publisher already."""
    return Retryable(
        f"the log {info.dataset}/{info.copy}/{info.log} is served by another live publisher: {by}",
        hint=(
            "stop the one that is not meant to serve it; if the other one was killed, its entry goes when its "
            "session times out"
        ),
        code="already-running",
    )


def who(owner: PublisherInfo | Term) -> str:
    """An owner of a log, in words."""
    return f"process {owner.pid} on {owner.host}, of the copy {owner.copy}"


def attach_taken(point: AttachPoint, by: str) -> Retryable:
    """The error if another live publisher of the log has the same name."""
    return Retryable(
        f"subscribers find another live publisher {point.name} of the log {point.log}: {by}",
        hint="one publisher of a log on each host is enough, stop the other one",
        code="already-running",
    )


def candidate_taken(group: LogGroup, info: CandidateInfo, by: str) -> Retryable:
    """The error if the copy has a live candidate on this host already."""
    return Retryable(
        f"the log {group} has another live candidate {info.name}: {by}",
        hint=(
            "one publisher of a log on each host is enough, stop the other one; if it was killed, its entry goes when "
            "its session times out"
        ),
        code="already-running",
    )


def not_owned(what: str) -> CoordinationLost:
    """The error if this process is no longer known as the owner of the log. ``what``: the refused operation."""
    return CoordinationLost(
        f"this process does not own the log any more, or not yet again: {what} was refused",
        hint="it goes on by itself if no other publisher took the log; `wormholectl publishers` names the owner",
        code="owner-elsewhere",
    )


def no_election() -> ConfigError:
    """The error for the static form, which has one publisher for each log."""
    return ConfigError(
        "the static form elects no owner of a log: its publisher runs on one host",
        hint="name a ZooKeeper in [coordinator]",
    )


def is_predecessor(entry: PublisherInfo, info: PublisherInfo) -> bool:
    """Whether ``entry`` was made by ``info``'s own process in an earlier session, or by a process that is dead, because
    ``info`` now holds its lock.
    """
    same_process = (entry.host, entry.pid, entry.started) == (info.host, info.pid, info.started)
    return same_process or bool(entry.owner and entry.owner == info.owner)


def subscriber_taken(info: SubscriberInfo, by: str) -> ConfigError:
    """The error if another live process uses the subscriber's id."""
    return ConfigError(
        f"application {info.application} has another live subscriber {info.id!r}: {by}",
        hint="give each subscriber an id of its own",
        code="already-running",
    )


def host_taken(info: MonitorInfo, by: str) -> ConfigError:
    """The error if the host has a live monitor already."""
    return ConfigError(
        f"a second monitor on this host: {info.host} has a live one: {by}",
        hint="stop that one first, or give this one another `host` under [monitor]; if it was killed, its entry goes "
        "when its "
        "session times out",
        code="already-running",
    )


def no_monitor(info: MonitorInfo) -> ConfigError:
    """The error if a state was reported for a monitor that is not registered here."""
    return ConfigError(f"the monitor of {info.host} is not registered here", hint="register it first")


def changed_meanwhile(seen: int) -> ConfigError:
    """The error if another client changed the configuration since it was read."""
    return ConfigError(
        f"another process changed the configuration since it was read (version {seen}): nothing was written",
        hint="look at `wormholectl config history`, then at the difference again: `wormholectl config diff FILE`",
        code="config-changed",
    )


def tokens_changed(application: str) -> ConfigError:
    """The error if another client changed the tokens since they were read."""
    return ConfigError(
        f"another process changed the tokens of {application} since they were read: nothing was written",
        hint=f"look at `wormholectl tokens list {application}`, then repeat it",
        code="config-changed",
    )


def nowhere_to_publish() -> ConfigError:
    """The error for the static form, which stores nothing."""
    return ConfigError(
        "the static form has nowhere to publish to: every process reads the file itself",
        hint="restart the processes that use it, or name a ZooKeeper in [coordinator]",
    )
