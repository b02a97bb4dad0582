"""Makes clients of kazoo, gives their nodes rights, and decides which of kazoo's errors mean that contact is lost.

Every node that a client of this module makes gets the rights of its place (:mod:`wormhole.coordination.access`); no
caller names any. Used by the ZooKeeper coordinator (through :mod:`wormhole.coordination.kazoo_session`) and by the
ZooKeeper marker store.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

from wormhole.config import CoordinatorConfig
from wormhole.coordination.access import Access, digest_id
from wormhole.coordination.credentials import VARIABLE, read_credentials, status_of
from wormhole.coordination.records import Paths
from wormhole.host.socket_table import listener_uids, server_uids
from wormhole.model.errors import ConfigError, CoordinationLost, WormholeError

__all__ = [
    "ANSWERS",
    "LOST_ERRORS",
    "Client",
    "acl_of",
    "after_refusal",
    "connect_blocking",
    "disconnect_blocking",
    "failure",
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
    RuntimeError,  # kazoo received the answer to another request: see `_Connecting`
    SessionExpiredError,
    SessionMovedError,
)

# Errors of ZooKeeper that callers handle. Any other error of ZooKeeper is a refusal.
ANSWERS: Final = (BadVersionError, NoNodeError, NodeExistsError)

_log = logging.getLogger(__name__)

# kazoo logs every attempt as a warning, about 30 lines a minute in an outage. Our own callers log what matters.
_kazoo_log = logging.getLogger("wormhole.kazoo")
_kazoo_log.setLevel(logging.ERROR)


def hosts_and_root(settings: CoordinatorConfig) -> tuple[tuple[str, ...], str]:
    """The servers, each ``host:port``, and the root: ``""`` or ``/name``."""
    hosts, slash, root = settings.zookeeper.partition("/")
    return tuple(host.strip() for host in hosts.split(",")), f"{slash}{root}".rstrip("/")


def acl_of(access: Access, paths: Paths, path: str) -> list[Any]:
    """The rights at a node in kazoo's form."""
    names = {"c": "create", "d": "delete", "r": "read", "w": "write", "a": "admin"}
    rights = sorted(access.rights(paths, path).items())
    return [make_acl("digest", one, **{names[letter]: True for letter in letters}) for one, letters in rights]


class _Client(KazooClient):  # type: ignore[misc]
    """A client that sets the rights of every node that it makes, by the node's path. Missing parents that it makes get
    theirs too.

    ``access``: the identities of the root, updated while connected; ``None`` if none were made. ``identity``: the
    client's own, empty without credentials.
    """

    def __init__(self, paths: Paths, identity: str, **options: Any) -> None:
        super().__init__(**options)
        self.paths = paths
        self.identity = identity
        self.access: Access | None = None
        self.add_listener(self._on_state)

    def acl_for(self, path: str) -> list[Any]:
        if not self.identity:
            return list(OPEN_ACL_UNSAFE)
        if self.access is None:
            return list(CREATOR_ALL_ACL)
        rights = acl_of(self.access, self.paths, path)
        # Until the root is closed, processes without credentials keep working.
        return rights if self.access.closed else [*rights, *OPEN_ACL_UNSAFE]

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, **options: Any) -> Any:
        return super().create_async(path, value, acl or self.acl_for(path), **options)

    def ensure_path_async(self, path: str, acl: Any = None) -> Any:
        return super().ensure_path_async(path)

    def transaction(self) -> Any:
        return _Transaction(self)

    def ask_access(self) -> Any:
        """Read the identities and their rights, now and whenever they change."""
        return self.get_async(self.paths.access, self._on_changed)

    def _on_changed(self, _event: object) -> None:  # in kazoo's thread
        self.ask_access().rawlink(self._on_access)

    def _on_state(self, state: str) -> None:  # in kazoo's thread
        if state == KazooState.CONNECTED and self.access is not None:  # a change may have been missed
            self.ask_access().rawlink(self._on_access)

    def _on_access(self, answer: Any) -> None:  # in kazoo's thread
        if answer.exception is None:
            try:
                self.access = Access.from_json(bytes(answer.value[0]), self.paths.access)
            except ConfigError as error:
                _log.error("what was read last stays in force: %s", error)


class _Transaction(TransactionRequest):  # type: ignore[misc]
    def create(self, path: str, value: bytes = b"", acl: Any = None, **options: Any) -> None:
        super().create(path, value, acl or self.client.acl_for(path), **options)


def new_client(
    settings: CoordinatorConfig,
    on_negotiated: Callable[[float, float], None] = lambda seconds, asked: None,
    clock: Callable[[], float] = time.monotonic,
) -> Client:
    """A client that is not started yet.

    ``on_negotiated`` is called at every connect, in kazoo's thread. Its arguments are the session timeout (seconds)
    that the server granted, and the time at which the server was asked to open or continue the session.

    Reads the file with the credentials, if there is one. Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    options: dict[str, Any] = {}
    if settings.tls is not None:
        tls = settings.tls
        options |= {"use_ssl": True, "certfile": str(tls.cert), "keyfile": str(tls.key), "ca": str(tls.ca)}
        options |= {"verify_certs": True, "check_hostname": True}
    identity = ""
    if settings.auth_file is not None:
        credentials = read_credentials(settings.auth_file)
        identity = digest_id(credentials)
        options["auth_data"] = [("digest", credentials)]
    # Jitter, so that a fleet does not come back in step; at most 2 s, so that contact returns well within a session.
    retry = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.5, max_delay=2.0)
    hosts, root = hosts_and_root(settings)
    client = _Client(
        Paths(root),
        identity,
        hosts=",".join(hosts),
        timeout=settings.session_timeout,
        connection_retry=retry,
        logger=_kazoo_log,
        **options,
    )
    if settings.same_user and settings.auth_file is not None:
        _SameUser(client, settings.auth_file)
    _Connecting(client, settings, on_negotiated, clock)
    return client


class _Connecting:
    """Wraps kazoo's connections: reports the granted session timeout, connects to a server that lost its data, and
    opens another session if a server leaves out an answer.

    A server refuses a client that has seen a later transaction than itself ("has seen zxid ... our last zxid is ...";
    source: ZooKeeper's ``ZooKeeperServer.processConnectRequest``). So no client reads an older state from a server that
    lags. But a server whose data was lost or restored refuses every client for ever. After a whole session without
    contact there is no state left to protect, and the client reads everything again.
    """

    def __init__(
        self,
        client: Client,
        settings: CoordinatorConfig,
        granted: Callable[[float, float], None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._timeout = settings.session_timeout
        self._granted = granted
        self._lost_at: float | None = None
        self._connect = client._connection._connect
        client._connection._connect = self
        self._read_response = client._connection._read_response
        client._connection._read_response = self._response
        client.add_listener(self._listen)

    def _listen(self, state: str) -> None:
        self._lost_at = None if state == KazooState.CONNECTED else self._lost_at or self._clock()

    def _response(self, *arguments: Any) -> Any:
        """Read a response. If the server left out an answer, end the session, because only another session helps.

        A server that confuses the requests of a session's connections leaves one answer out, again after each connect
        (ZOOKEEPER-2684 describes such a state). The answer to the next request then ends kazoo's thread: "xids do not
        match".
        """
        try:
            return self._read_response(*arguments)
        except RuntimeError as error:
            _log.warning(
                "ZooKeeper %s left out an answer, so the session is given up: %s", self._settings.zookeeper, error
            )
            raise SessionExpiredError(str(error)) from error

    def __call__(self, *arguments: Any) -> Any:
        client = self._client
        if self._lost_at is not None and client.last_zxid and self._clock() - self._lost_at > self._timeout:
            _log.warning(
                (
                    "ZooKeeper %s lets us in no more for longer than a session lasts: connecting as a new client, in "
                    "case its data was lost"
                ),
                self._settings.zookeeper,
            )
            client.last_zxid = 0
        asked = self._clock()
        result = self._connect(*arguments)
        # kazoo does not expose the granted timeout; `_connect` returns 2/3 of it, in milliseconds, as read timeout. A
        # lease computed from the requested timeout would be too long if the server grants less.
        seconds = result[0] * 1.5 / 1000
        self._timeout = max(seconds, self._settings.session_timeout)
        self._granted(seconds, asked)
        return result


class _SameUser:
    """Checks every connection to a server that has to belong to the client's own user (``same_user``).

    Digest credentials, and the password of a session, are sent to the server unencrypted. A process of another user
    that took the port must not receive them. So the server's user is checked before anything is sent.
    """

    def __init__(self, client: Client, auth_file: Path) -> None:
        self._auth_file = auth_file
        self._refusal = ""
        self._connect = client.handler.create_connection
        client.handler.create_connection = self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        made = self._connect(*arguments, **options)
        try:
            port = made.getpeername()[1]
            _check_server(self._auth_file, port, server_uids(port, made.getsockname()[1]))
        except (ConfigError, OSError) as error:
            made.close()
            if str(error) != self._refusal:
                _log.error("%s", error)
            self._refusal = str(error)
            raise ConnectionDropped(str(error)) from error
        self._refusal = ""
        return made


def _check_server(auth_file: Path, port: int, users: Collection[int]) -> None:
    """Refuse a server if none of its ``users`` is the owner of ``auth_file`` or root.

    Raises :class:`~wormhole.model.errors.ConfigError`.
    """
    owner = status_of(auth_file).st_uid
    others = set(users) - {owner, 0}
    if others:
        raise ConfigError(
            f"127.0.0.1:{port} is served by user {min(others)}, not by user {owner}, who owns {auth_file}: "
            "the credentials are not sent there",
            hint="find out what listens there, and start `wormholectl up` again",
            code="address-taken",
        )


def connect_blocking(client: Client, settings: CoordinatorConfig) -> None:
    """Start ``client`` and read its rights.

    Raises :class:`~wormhole.model.errors.CoordinationLost` when nothing answers in time. Raises
    :class:`~wormhole.model.errors.ConfigError` when the credentials are refused, or when there are none and they are
    needed.
    """
    if (
        settings.same_user and settings.auth_file is not None
    ):  # fail at once: the client would retry until its own timeout
        for host in hosts_and_root(settings)[0]:
            port = int(host.rpartition(":")[2])
            _check_server(settings.auth_file, port, listener_uids(port))
    try:
        client.start(timeout=settings.connect_timeout)
        client.access = _access(client, settings)
    except LOST_ERRORS as error:
        disconnect_blocking(client)
        if isinstance(error, AuthFailedError):
            raise _not_admitted(settings) from error
        raise CoordinationLost(
            f"ZooKeeper {settings.zookeeper} does not answer within {settings.connect_timeout:g} s",
            hint="check that it runs and that coordinator.zookeeper names it",
        ) from error
    except WormholeError:
        disconnect_blocking(client)
        raise


def _access(client: Client, settings: CoordinatorConfig) -> Access | None:
    path = client.paths.access
    try:
        data, _ = client.ask_access().get(timeout=settings.connect_timeout)
    except NoNodeError:
        return None
    except NoAuthError as error:
        raise _not_admitted(settings) from error
    access = Access.from_json(bytes(data), path)
    if access.closed and not access.role(client.identity):
        raise _not_admitted(settings)
    return access


def _not_admitted(settings: CoordinatorConfig) -> ConfigError:
    if settings.auth_file is None:
        return ConfigError(
            f"ZooKeeper {settings.zookeeper} is closed to processes without credentials, and this one has none",
            hint="name the credentials file that its operator made for this identity as auth_file in [coordinator] or "
            f"in {VARIABLE}; one that `wormholectl up` embeds is reached through its configuration file",
            code="coordination-refused",
        )
    return ConfigError(
        f"ZooKeeper {settings.zookeeper} does not know the credentials in {settings.auth_file}",
        hint="ask its operator for the file that `wormholectl zookeeper credentials` made for this identity, "
        f"and correct coordinator.auth_file or {VARIABLE}",
        code="coordination-refused",
    )


def disconnect_blocking(client: Client) -> None:
    """End the session and free the client, whatever its state."""
    try:
        client.stop()
        client.close()
    except Exception as error:  # noqa: BLE001 - kazoo raises plain Exception here; the process continues without it
        _log.warning("ZooKeeper client did not stop cleanly: %s", error)


def lost(what: str, settings: CoordinatorConfig, cause: BaseException | None = None) -> WormholeError:
    """The error for a request that failed because contact is missing. ``what``: the purpose of the request."""
    reason = f" ({type(cause).__name__})" if cause is not None else ""
    return CoordinationLost(
        f"no contact with ZooKeeper {settings.zookeeper}{reason}: {what}",
        hint="a retry follows; check that ZooKeeper runs and can be reached",
    )


def refused(what: str, settings: CoordinatorConfig, cause: BaseException) -> WormholeError:
    """The error for a request that ZooKeeper refuses, for example because of a missing right."""
    return ConfigError(
        f"ZooKeeper {settings.zookeeper} refuses to {what}: {type(cause).__name__}",
        hint=after_refusal(settings, cause),
        code="coordination-refused",
    )


def failure(results: Iterable[object]) -> KazooException | None:
    """The reason why a transaction wrote nothing, from its results; ``None`` when it succeeded.

    The results are those of all its operations. After a failure one operation has an error, and the others are marked
    as undone.
    """
    for result in results:
        if isinstance(result, KazooException) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            return result
    return None


def after_refusal(settings: CoordinatorConfig, cause: BaseException) -> str:
    """The next step for an operator after ZooKeeper refused a request."""
    if not isinstance(cause, NoAuthError):
        return "see the log of ZooKeeper"
    if settings.auth_file is None:
        whose = f"none are given: name the file in coordinator.auth_file or {VARIABLE}"
    else:
        whose = f"those in {settings.auth_file} are for something else"
    return f"use credentials that may do this; {whose}"
