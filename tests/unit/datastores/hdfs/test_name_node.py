"""Which error of the product a failure of Hadoop's client becomes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from datastores.hdfs.java.name_node import NameNode, _edits
from datastores.hdfs.url import Address
from wormhole.model.errors import SourceUnavailable, UnsupportedLog, UsageError, WormholeError

ADDRESS = Address("ann", ("nn1:8020", "nn2:8020"))


class Thrown:
    """A Java exception, as py4j shows it. ``remote``: the class that the NameNode threw, if it is of that."""

    def __init__(self, kind: str, message: str | None, remote: str = "", cause: Thrown | None = None) -> None:
        self._kind, self._message, self._remote, self._cause = kind, message, remote, cause

    def getCause(self) -> Thrown | None:
        return self._cause

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self._kind)

    def getClassName(self) -> str:
        return self._remote

    def getMessage(self) -> str | None:
        return self._message


def remote(kind: str, message: str | None = "no\n\tat org.apache") -> Thrown:
    return Thrown("org.apache.hadoop.ipc.RemoteException", message, kind)


@pytest.mark.parametrize(
    ("thrown", "kind", "code"),
    [
        (remote("org.apache.hadoop.security.AccessControlException"), UsageError, "account-lacks-rights"),
        (remote("org.apache.hadoop.ipc.StandbyException"), SourceUnavailable, "copy-not-ready"),
        (remote("org.apache.hadoop.ipc.RetriableException"), SourceUnavailable, "source-unavailable"),
        (remote("org.apache.hadoop.ipc.RpcNoSuchMethodException"), UnsupportedLog, "log-unsupported"),
        (remote("java.lang.UnsupportedOperationException", None), UnsupportedLog, "log-unsupported"),
        (remote("java.io.IOException", "a JournalNode is silent"), SourceUnavailable, "source-unavailable"),
        (
            Thrown("java.net.ConnectException", "x", cause=Thrown("java.net.ConnectException", "Connection refused")),
            SourceUnavailable,
            "source-unavailable",
        ),
    ],
)
def test_each_failure_has_one_error_and_a_next_step(thrown: Thrown, kind: type[WormholeError], code: str) -> None:
    error = NameNode(ADDRESS)._error(thrown)
    assert (type(error), error.code) == (kind, code)
    assert error.hint
    assert "nn1:8020, nn2:8020" in error.message
    assert "\n" not in error.message


def test_a_router_returns_nothing_and_is_refused() -> None:
    client = SimpleNamespace(getNamenode=lambda: SimpleNamespace(getEditsFromTxid=lambda txid: None))
    with pytest.raises(UnsupportedLog, match="router") as error:
        _edits(client, None, 1)
    assert error.value.hint
