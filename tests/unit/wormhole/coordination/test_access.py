"""Who may use which node, as which user, with which secret."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl_credential

from wormhole.config import CoordinatorConfig
from wormhole.coordination.access import ALL, Access, digest_id
from wormhole.coordination.credentials import make_credentials, read_credentials
from wormhole.coordination.current_user import current_user
from wormhole.coordination.kazoo_client import new_client
from wormhole.coordination.port import LogGroup
from wormhole.coordination.records import Paths
from wormhole.model.errors import ConfigError

# --- Who may do what at each node, and the record that says so


PATHS = Paths("/wormhole")
GROUP = LogGroup("shop", "@failover", "db1")
ACCESS = Access("op", "pub", {"cache": "sub-cache", "search": "sub-search"}, closed=True)

EVERY_PLACE = {
    "/wormhole": {},
    PATHS.access: {"pub": "r", "sub-cache": "r", "sub-search": "r"},
    PATHS.applications: {"pub": "r"},
    PATHS.application("cache"): {"pub": "cr", "sub-cache": "r"},
    PATHS.application("unknown"): {"pub": "cr"},
    PATHS.subscribers("cache"): {"pub": "r", "sub-cache": "cdr"},
    PATHS.subscriber("cache", "c1"): {"pub": "r", "sub-cache": "rw"},
    PATHS.flows("cache"): {"pub": "cdrw", "sub-cache": "r"},
    PATHS.flow("cache", "db1"): {"pub": "cdrw", "sub-cache": "r"},
    PATHS.tokens("cache"): {"pub": "r"},
    PATHS.attach("cache"): {"pub": "cdrw", "sub-cache": "r"},
    f"{PATHS.attach('cache')}/db1.main@db-7": {"pub": "cdrw", "sub-cache": "r"},
    PATHS.marker("cache", "db1"): {"pub": "cdrw"},
    PATHS.delivery_counts("cache", "db1"): {"pub": "cdrw"},
    "/wormhole/applications/cache/dead_letters/db1/1/parcel": {"pub": "cdrw"},
    PATHS.dataset("shop"): {"pub": "r"},
    PATHS.publisher("shop", "main", "db1"): {"pub": "cdrw"},
    PATHS.logs: {"pub": "cdrw"},
    PATHS.log(GROUP): {"pub": "cdrw"},
    PATHS.owner(GROUP): {"pub": "cdrw"},
    PATHS.claim(GROUP, "0f"): {"pub": "cdrw"},
    PATHS.log_state(GROUP, "histories"): {"pub": "cdrw"},
    PATHS.config: {"pub": "r"},
    PATHS.history: {"pub": "cr"},
    f"{PATHS.history}/e0000000000": {},
    PATHS.hosts: {"pub": "cr"},
    PATHS.host("db-7"): {"pub": "cdr"},
    PATHS.monitor("db-7"): {"pub": "rw"},
    "/wormhole/something-new": {},
    "/": {},
    "/zookeeper/quota": {},
    "/wormholes/applications/cache": {},
}


@pytest.mark.parametrize("path", EVERY_PLACE)
def test_every_identity_has_what_it_needs_and_the_operator_everything(path: str) -> None:
    assert ACCESS.rights(PATHS, path) == {"op": ALL, **EVERY_PLACE[path]}


def test_a_root_that_is_none_has_the_same_rights() -> None:
    bare = Paths("")
    assert ACCESS.rights(bare, bare.dataset("shop")) == {"op": ALL, "pub": "r"}
    assert ACCESS.rights(bare, "/somebody-else") == {"op": ALL}


def test_who_is_two_identities_has_the_rights_of_both() -> None:
    one = Access("me", "me", {"cache": "me"})
    assert {path: one.rights(PATHS, path) for path in EVERY_PLACE} == {path: {"me": ALL} for path in EVERY_PLACE}
    both = Access("op", "me", {"cache": "me"})
    assert both.rights(PATHS, PATHS.subscribers("cache"))["me"] == "cdr"


def test_the_record_survives_and_says_who_is_who() -> None:
    for known in (ACCESS, Access("o" * 1_000, "p" * 1_000, {"cache": "s" * 1_000})):
        assert Access.from_json(known.to_json(), "/access") == known
    assert [ACCESS.role(one) for one in ("op", "pub", "sub-cache", "eve", "")] == [
        "operator",
        "publisher",
        "subscriber of cache",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"[" * 100_000, b'{"operator": 1, "publisher": "p", "subscribers": {}, "closed": true}',
             b'{"operator": "o", "publisher": "p", "subscribers": 7, "closed": true}',
             b'{"operator": "o", "publisher": "p", "subscribers": {}, "closed": 0}'],
)  # fmt: skip
def test_a_record_that_makes_no_sense_is_named(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^/wormhole/access: ") as caught:
        Access.from_json(data, "/wormhole/access")
    assert caught.value.code == "record-invalid"
    assert "wormholectl zookeeper credentials" in str(caught.value.hint)


def test_an_identity_is_what_zookeeper_makes_of_the_credentials() -> None:
    assert digest_id("maria:se:cret") == make_digest_acl_credential("maria", "se:cret")


# --- Files with credentials: made once, private whatever the umask, and never shown


def test_they_are_random_private_and_made_once(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make_credentials(tmp_path / "one", "publisher")
    finally:
        os.umask(before)
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    assert make_credentials(tmp_path / "one", "somebody") == read_credentials(tmp_path / "one") == made
    other = make_credentials(tmp_path / "two", "publisher")
    assert other != made
    assert [text.partition(":")[0] for text in (made, other)] == ["publisher"] * 2
    assert min(len(text.partition(":")[2]) for text in (made, other)) >= 43  # 256 bits
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        make_credentials(tmp_path / "nowhere" / "file", "publisher")


@pytest.mark.parametrize("content", [None, b"", b"user", b":p", b"user:", b"a:b\nc:hunter2", b"\xff"])
def test_what_is_no_credentials_is_reported_without_showing_it(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "auth"
    if content is not None:
        path.write_bytes(content)
    for read in (read_credentials, lambda path: new_client(CoordinatorConfig(zookeeper="zk1:1", auth_file=path))):
        with pytest.raises(ConfigError, match=r"coordinator\.auth_file") as caught:
            read(path)
        assert caught.value.hint
        assert "hunter2" not in str(caught.value)


# --- Who changes something from here


def test_a_user_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "eve")
    assert current_user() == f"eve@{socket.gethostname()}"


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no name")])
def test_a_user_id_without_a_name(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def unknown() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert current_user() == f"unknown user@{socket.gethostname()}"
