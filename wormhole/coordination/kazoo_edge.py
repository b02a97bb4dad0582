"""The edge to kazoo: how a client is made, and which of its errors mean that contact is missing.

Used by the ZooKeeper coordinator (through :mod:`wormhole.coordination.kazoo_session`) and by the ZooKeeper marker store.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from wormhole.config import CoordinatorConfig
from wormhole.errors import ConfigError, CoordinationLost, WormholeError

__all__ = [
    "ANSWERS",
    "LOST_ERRORS",
    "Client",
    "connect_blocking",
    "disconnect_blocking",
    "hosts_and_root",
    "lost",
    "new_client",
    "refused",
]

# kazoo publishes no types.
Client = Any

LOST_ERRORS: Final = (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)

# Answers that callers reckon with; what else ZooKeeper may answer is a refusal.
ANSWERS: Final = (BadVersionError, NoNodeError, NodeExistsError)

_log = logging.getLogger(__name__)

# kazoo tells every attempt at warning level, about 30 lines a minute in an outage; what matters is told by our own callers.
_kazoo_log = logging.getLogger("wormhole.kazoo")
_kazoo_log.setLevel(logging.ERROR)


def hosts_and_root(settings: CoordinatorConfig) -> tuple[tuple[str, ...], str]:
    """The servers, each ``host:port``, and the root: ``""`` or ``/name``."""
    hosts, slash, root = settings.zookeeper.partition("/")
    return tuple(host.strip() for host in hosts.split(",")), f"{slash}{root}".rstrip("/")


def new_client(settings: CoordinatorConfig, on_negotiated: Callable[[float], None] | None = None) -> Client:
    """A client that is not started yet. ``on_negotiated`` is told the session timeout (seconds) that the server granted,
    at every connect and in kazoo's thread.

    Reads the file with the credentials, if there is one. Raises :class:`~wormhole.errors.ConfigError`.
    """
    options: dict[str, Any] = {}
    if settings.tls is not None:
        tls = settings.tls
        options |= {"use_ssl": True, "certfile": str(tls.cert), "keyfile": str(tls.key), "ca": str(tls.ca)}
        options |= {"verify_certs": True, "check_hostname": True}
    if settings.auth_file is not None:
        options |= {"auth_data": [("digest", _credentials(settings))], "default_acl": CREATOR_ALL_ACL}
    # Jitter, so that a fleet does not come back in step; at most 2 s, so that contact returns well within a session.
    retry = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.5, max_delay=2.0)
    client = KazooClient(
        hosts=",".join(hosts_and_root(settings)[0]),
        timeout=settings.session_timeout,
        connection_retry=retry,
        logger=_kazoo_log,
        **options,
    )
    _Connecting(client, settings, on_negotiated or (lambda seconds: None))
    return client


class _Connecting:
    """Stands before kazoo's attempts to connect: reports the granted session timeout, and lets a client in whose server lost its data.

    A server refuses a client that has seen a later transaction than itself ("has seen zxid ... our last zxid is ..."; source:
    ZooKeeper's ``ZooKeeperServer.processConnectRequest``), so that nobody goes back in time with a server that lags. A server whose data
    was lost or restored refuses every client for ever. After a whole session without contact there is nothing left to protect: whoever
    reads then reads everything anew.
    """

    def __init__(self, client: Client, settings: CoordinatorConfig, granted: Callable[[float], None]) -> None:
        self._client = client
        self._settings = settings
        self._timeout = settings.session_timeout
        self._granted = granted
        self._lost_at: float | None = None
        self._connect = client._connection._connect
        client._connection._connect = self
        client.add_listener(self._listen)

    def _listen(self, state: str) -> None:
        self._lost_at = None if state == KazooState.CONNECTED else self._lost_at or time.monotonic()

    def __call__(self, *arguments: Any) -> Any:
        client = self._client
        if self._lost_at is not None and client.last_zxid and time.monotonic() - self._lost_at > self._timeout:
            _log.warning(
                "ZooKeeper %s lets us in no more for longer than a session lasts: connecting as a new client, in case its data was lost",
                self._settings.zookeeper,
            )
            client.last_zxid = 0
        result = self._connect(*arguments)
        # kazoo keeps the granted timeout to itself; `_connect` returns 2/3 of it, in milliseconds, as read timeout. A lease
        # computed from what was asked for would be too long where the server grants less.
        seconds = result[0] * 1.5 / 1000
        self._timeout = max(seconds, self._settings.session_timeout)
        self._granted(seconds)
        return result


def connect_blocking(client: Client, settings: CoordinatorConfig) -> None:
    """Start ``client``. Raises :class:`~wormhole.errors.CoordinationLost` when nothing answers in time, and
    :class:`~wormhole.errors.ConfigError` when the credentials are refused."""
    try:
        client.start(timeout=settings.connect_timeout)
    except LOST_ERRORS as error:
        disconnect_blocking(client)
        if isinstance(error, AuthFailedError):
            raise ConfigError(
                f"ZooKeeper {settings.zookeeper} refuses the credentials", hint="correct coordinator.auth_file"
            ) from error
        raise CoordinationLost(
            f"ZooKeeper {settings.zookeeper} does not answer within {settings.connect_timeout:g} s",
            hint="check that it runs and that coordinator.zookeeper names it",
        ) from error


def disconnect_blocking(client: Client) -> None:
    """End the session and free the client, however far it got."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # noqa: BLE001 - kazoo raises plain Exception here; the process goes on without it
        _log.warning("ZooKeeper client did not stop cleanly: %s", error)


def lost(what: str, settings: CoordinatorConfig, cause: BaseException | None = None) -> WormholeError:
    """The error for an answer that needs contact and cannot have it."""
    reason = f" ({type(cause).__name__})" if cause is not None else ""
    return CoordinationLost(
        f"no contact with ZooKeeper {settings.zookeeper}{reason}: {what}",
        hint="it is tried again by itself; check that ZooKeeper runs and can be reached",
    )


def refused(what: str, settings: CoordinatorConfig, cause: BaseException) -> WormholeError:
    """The error for a request that ZooKeeper answers with a refusal, such as missing permission."""
    return ConfigError(
        f"ZooKeeper {settings.zookeeper} refuses to {what}: {type(cause).__name__}",
        hint="check coordinator.auth_file and the permissions (ACL) of the root that coordinator.zookeeper names",
    )


def _credentials(settings: CoordinatorConfig) -> str:
    assert settings.auth_file is not None
    try:
        text = settings.auth_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'coordinator.auth_file = "{settings.auth_file}": cannot be read: {error}') from error
    if ":" not in text or "\n" in text:
        raise ConfigError(f'coordinator.auth_file = "{settings.auth_file}": must hold one line, user:password')
    return text
