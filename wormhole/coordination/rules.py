"""What every form checks before it lets somebody in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wormhole.config import ApplicationConfig
from wormhole.coordination.port import PublisherInfo, SubscriberInfo
from wormhole.errors import ConfigError
from wormhole.tls import is_loopback

__all__ = ["all_loopback", "check_subscriber", "log_taken", "publisher_to_tell", "subscriber_taken"]


def all_loopback(hosts: Iterable[str]) -> bool:
    """Whether every ``host:port`` of a coordination service is on loopback: then all its users are on this machine."""
    return all(map(is_loopback, hosts))


def check_subscriber(info: SubscriberInfo, application: ApplicationConfig, *, service_on_loopback: bool) -> None:
    """Raise :class:`~wormhole.errors.ConfigError` for a subscriber that is not allowed, or that nobody could dial."""
    if not application.allows(info.id):
        raise ConfigError(
            f"subscriber {info.id!r} is not in the allow list of application {info.application}",
            hint=f"add it to applications.{info.application}.allow, now {', '.join(application.allow)}",
        )
    if is_loopback(info.address) and not service_on_loopback:
        raise ConfigError(
            f"subscriber {info.id!r} advertises {info.address}, which no other machine can reach, in a ZooKeeper that other "
            "machines use",
            hint="set `advertise` (WORMHOLE_ADVERTISE) to an address that the publishers can dial",
        )


def publisher_to_tell(info: PublisherInfo, *, service_on_loopback: bool) -> PublisherInfo:
    """``info`` as others may see it: an admin address on loopback is of no use to other machines and is left out."""
    if info.address and is_loopback(info.address) and not service_on_loopback:
        return replace(info, address="")
    return info


def log_taken(info: PublisherInfo, by: str) -> ConfigError:
    """The log has a live publisher already."""
    return ConfigError(
        f"the log {info.dataset}/{info.copy}/{info.log} is served by another live publisher: {by}",
        hint="stop that one first; if it was killed, its entry goes when its session times out",
    )


def subscriber_taken(info: SubscriberInfo, by: str) -> ConfigError:
    """Another live process uses the subscriber's id."""
    return ConfigError(
        f"application {info.application} has another live subscriber {info.id!r}: {by}",
        hint="give each subscriber an id of its own",
    )
