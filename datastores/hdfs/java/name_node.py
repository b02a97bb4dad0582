"""Calls the NameNode for its edits and its state, and turns its failures into the product's errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from datastores.hdfs.decode.events import Edits
from datastores.hdfs.java.jvm import Jvm
from datastores.hdfs.url import Address
from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError, WormholeError

__all__ = ["NameNode", "State"]

T = TypeVar("T")
_HDFS: Final = "org.apache.hadoop.hdfs"
_SERVICE: Final = "wormhole"
_WAITS: Final = {
    "ipc.client.connect.max.retries": "1",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.connect.timeout": "5000",
    "ipc.client.rpc-timeout.ms": "60000",
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.max.millis": "1000",
    "dfs.client.retry.max.attempts": "1",
}


@dataclass(frozen=True, slots=True)
class State:
    """``folders``: the folders directly below the root. ``safe_mode``: whether the NameNode rejects changes now."""

    folders: tuple[str, ...]
    safe_mode: bool


class NameNode:
    """A client of the NameNode. Thread-safe. A call starts the JVM if none runs."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._jvm: Jvm | None = None
        self._client: Any = None
        self._stopped = False

    def edits(self, txid: int) -> Edits:
        """The edits from transaction ``txid`` on, about a thousand events.

        Raises :class:`~wormhole.model.errors.SourceUnavailable`, :class:`~wormhole.model.errors.UnsupportedLog` and
        :class:`~wormhole.model.errors.UsageError`.
        """
        return Edits.decode(self._call(lambda client, classes: _edits(client, classes, txid)))

    def state(self) -> State:
        """The facts that the doctor and the names of shards need. Raises as :meth:`edits`."""
        return self._call(_state)

    def stop(self) -> None:
        """End the JVM. Later calls fail."""
        with self._lock:
            self._stopped = True
            jvm, self._jvm, self._client = self._jvm, None, None
        if jvm is not None:
            jvm.stop()

    @property
    def pid(self) -> int:
        """The JVM's process id; 0: no JVM runs."""
        with self._lock:
            return self._jvm.pid if self._jvm is not None and self._jvm.runs else 0

    def _call(self, asked: Callable[[Any, Any], T]) -> T:
        try:
            client, classes = self._connected()
            return asked(client, classes)
        except Py4JJavaError as error:
            raise self._error(error.java_exception) from error
        except (Py4JError, OSError) as error:
            raise SourceUnavailable(
                f"the JVM with Hadoop's client ended or does not answer: {error}",
                hint="it is started again; if that repeats, look at the host's memory",
            ) from error

    def _connected(self) -> tuple[Any, Any]:
        with self._lock:
            if self._stopped:
                raise SourceUnavailable("the source is stopped")
            if self._jvm is None or not self._jvm.runs:
                ended, self._jvm, self._client = self._jvm, None, None
                if ended is not None:
                    ended.stop()
                self._jvm = _launched(self._address)
            classes = self._jvm.classes
            if self._client is None:
                self._client = _client(classes, self._address)
            return self._client, classes

    def _error(self, cause: Any) -> WormholeError:
        """The product's error for an exception of Hadoop's client."""
        while (inner := cause.getCause()) is not None:
            cause = inner
        kind = cause.getClass().getName()
        if kind.endswith(".RemoteException"):
            kind = cause.getClassName()
        kind, text = kind.rpartition(".")[2], (str(cause.getMessage()).splitlines() or [""])[0]
        where = ", ".join(self._address.name_nodes)
        known = _KNOWN.get(kind)
        if known is None:
            return SourceUnavailable(
                f"the NameNode at {where} does not serve its edits: {kind}: {text}",
                hint="see that it runs and is reached from here; a retry follows",
            )
        error, hint, code = known
        return error(f"the NameNode at {where} refuses its edits: {text or kind}", hint=hint, code=code)


_KNOWN: Final[Mapping[str, tuple[Callable[..., WormholeError], str, str]]] = {
    "AccessControlException": (
        UsageError,
        "name a superuser in the URL, or add the account to the group of `dfs.permissions.superusergroup`",
        "account-lacks-rights",
    ),
    "StandbyException": (
        SourceUnavailable,
        "name every NameNode in the URL, separated by commas; retries follow until one is active",
        "copy-not-ready",
    ),
    "RetriableException": (SourceUnavailable, "it is starting; a retry follows", "source-unavailable"),
    "RpcNoSuchMethodException": (UnsupportedLog, "upgrade Hadoop to 3.0 or newer", "log-unsupported"),
    "RpcNoSuchProtocolException": (UnsupportedLog, "name the RPC address of the NameNode", "log-unsupported"),
    "VersionMismatch": (UnsupportedLog, "upgrade Hadoop to 3.0 or newer", "log-unsupported"),
    "UnsupportedOperationException": (UnsupportedLog, "name the NameNode instead of a router", "log-unsupported"),
}


def _edits(client: Any, classes: Any, txid: int) -> bytes:
    found = client.getNamenode().getEditsFromTxid(txid)
    if found is None:
        raise UnsupportedLog(
            "the address is that of a router of a federation, which has no edits of its own",
            hint="name the NameNode instead of a router, and one log for each",
        )
    answer: bytes = classes.org.apache.hadoop.hdfs.protocolPB.PBHelperClient.convertEditsResponse(found).toByteArray()
    return answer


def _state(client: Any, classes: Any) -> State:
    actions = classes.org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction
    safe_mode = client.setSafeMode(actions.SAFEMODE_GET, False)
    names: list[str] = []
    after = classes.org.apache.hadoop.hdfs.protocol.HdfsFileStatus.EMPTY_NAME
    while True:
        page = client.listPaths("/", after)
        names += [status.getLocalName() for status in page.getPartialListing()]
        if not page.hasMore():
            return State(tuple(names), safe_mode)
        after = page.getLastName()


def _launched(address: Address) -> Jvm:
    variables = {"HADOOP_USER_NAME": address.user} if address.user else {}
    return Jvm(variables, (address.configuration,) if address.configuration else ())


def _client(classes: Any, address: Address) -> Any:
    """Hadoop's client. Its own retries are few, because the log may be another one after a failure."""
    settings = classes.org.apache.hadoop.conf.Configuration()
    if address.configuration:
        settings.addResource("hdfs-site.xml")
    for name, value in _WAITS.items():
        settings.set(name, value)
    uri = f"hdfs://{address.name_nodes[0]}"
    if len(address.name_nodes) > 1:
        uri = f"hdfs://{_SERVICE}"
        names = [f"nn{number}" for number in range(len(address.name_nodes))]
        settings.set("dfs.nameservices", _SERVICE)
        settings.set(f"dfs.ha.namenodes.{_SERVICE}", ",".join(names))
        for name, place in zip(names, address.name_nodes, strict=True):
            settings.set(f"dfs.namenode.rpc-address.{_SERVICE}.{name}", place)
        settings.set(
            f"dfs.client.failover.proxy.provider.{_SERVICE}",
            f"{_HDFS}.server.namenode.ha.ConfiguredFailoverProxyProvider",
        )
    users = classes.org.apache.hadoop.security.UserGroupInformation
    users.setConfiguration(settings)
    if address.principal:
        users.loginUserFromKeytab(address.principal, address.keytab)
    return classes.org.apache.hadoop.hdfs.DFSClient(classes.java.net.URI(uri), settings)
