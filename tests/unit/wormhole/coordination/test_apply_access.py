"""A ZooKeeper gets its rights: a fleet's in two steps, with least privilege for each identity."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.contract.test_coordinator import CANDIDATE, DB1, GROUP, MONITOR, MORE, PLAIN, A, config, soon
from tests.support.eventually import eventually
from wormhole.config import CoordinatorConfig
from wormhole.coordination.apply_access import access_state, close_to_others, make_identities
from wormhole.coordination.connect import publish_config
from wormhole.coordination.credentials import make_credentials
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.port import ConfigChange, FlowRecord, HistoryEntry, HostRequest, MoveRequest
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError

FLOW = {("cache", "db1"): FlowRecord("me", "a", 1, "live")}
ENTRY = HistoryEntry(time.time(), "me", "test", "", "", "")


class Fleet:
    """A root that holds a configuration, and credentials for who uses it."""

    def __init__(self, zookeeper: str, folder: Path) -> None:
        self.open = CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0)
        self.folder = folder

    def named(self, who: str) -> CoordinatorConfig:
        return self.open.model_copy(update={"auth_file": self.folder / who})

    @asynccontextmanager
    async def client(self, who: str = "") -> AsyncIterator[ZooKeeperCoordinator]:
        made = ZooKeeperCoordinator(self.named(who) if who else self.open)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


@pytest.fixture
async def fleet(zookeeper: str, tmp_path: Path) -> Fleet:
    made = Fleet(zookeeper, tmp_path)
    async with made.client() as client:
        await publish_config(config(MORE), client)
    return made


@pytest.fixture
def closed(fleet: Fleet) -> Fleet:
    make_identities(fleet.open, fleet.folder)
    close_to_others(fleet.named("operator"))
    return fleet


pytestmark = pytest.mark.allow_blocking("securing blocks, and is called here directly")


async def test_an_open_one_warns_and_a_closed_one_does_not(fleet: Fleet) -> None:
    async with fleet.client() as client:
        (warning,) = await client.warnings()
        assert "every client that reaches ZooKeeper" in str(warning)
        assert "wormholectl zookeeper credentials" in str(warning)
    make_identities(fleet.open, fleet.folder)
    close_to_others(fleet.named("operator"))
    async with fleet.client("publisher") as client:
        assert await client.warnings() == ()
    (fleet.folder / "publisher").chmod(0o644)
    async with fleet.client("publisher") as client:
        (warning,) = await client.warnings()
        assert f"chmod 600 {fleet.folder / 'publisher'}" in str(warning)


async def test_each_identity_does_its_work(closed: Fleet) -> None:
    async with closed.client("publisher") as publisher, closed.client("subscriber-cache") as subscriber:
        assert (await subscriber.application("cache")).dataset == "shop"
        registration = await subscriber.register_subscriber(A)
        assert await soon(publisher.watch_subscribers("cache")) == (A,)
        await registration.close()
        await subscriber.register_subscriber(A)
        await publisher.register_publisher(DB1)
        await publisher.register_monitor(MONITOR)
        candidate = await publisher.register_candidate(GROUP, CANDIDATE)
        assert (await soon(publisher.watch_log(GROUP))).candidates == (CANDIDATE,)
        claim = await publisher.own_log(GROUP, DB1, server="", why="")
        await candidate.close()
        await publisher.write_flows(FLOW)
        await publisher.record(ENTRY)
        assert await soon(publisher.watch_host("host1")) == HostRequest()
        assert "shop" in (await publisher.configuration()).datasets
        async with closed.client("operator") as operator:
            assert await operator.publishers() == (DB1,)
            assert await operator.subscribers() == (A,)
            assert await operator.monitors() == (MONITOR,)
            assert await operator.flows() == FLOW
            await operator.request_move(GROUP, MoveRequest("west@host2", "maria", 1.0))
            assert (await operator.log_owners())[GROUP].owner == DB1
            await claim.close()
            await publisher.own_log(GROUP, DB1, server="", why="")
            owners = (await operator.log_owners())[GROUP]
            assert (owners.owner, owners.move, len(owners.terms)) == (DB1, None, 2)
            assert len(await operator.history()) == 2
            await operator.set_host("host1", HostRequest(True, "maria", 1.0))
            await publish_config(config(PLAIN.replace("earliest", "latest")), operator)


@pytest.mark.parametrize("who", ["publisher", "subscriber-cache"])
async def test_only_the_operator_changes_configuration(closed: Fleet, who: str) -> None:
    async with closed.client("operator") as operator:
        await operator.set_host("host1", HostRequest())
    async with closed.client(who) as client:
        with pytest.raises(ConfigError, match="NoAuthError") as caught:
            await client.publish(ConfigChange(1, {}, {}), ENTRY)
        assert str(closed.folder / who) in str(caught.value.hint)
        with pytest.raises(ConfigError, match="NoAuthError"):
            await client.set_host("host1", HostRequest(True, "eve", 1.0))


async def test_a_subscriber_has_its_own_application_only(closed: Fleet) -> None:
    root = closed.open.zookeeper.partition("/")
    eve = KazooClient(root[0], auth_data=[("digest", (closed.folder / "subscriber-cache").read_text().strip())])
    eve.start()
    try:
        refused = 0
        tops = ("applications", "publishers", "logs", "hosts", "history", "")
        for path in ("applications/search", "datasets/shop", *tops):
            with pytest.raises(NoAuthError):
                eve.get(f"/{root[2]}/{path}".rstrip("/"))
            refused += 1
        below = ("applications/search/subscribers/eve", "applications/cache/flows")
        for path in (*below, "publishers/shop", "logs/shop", "eve"):
            with pytest.raises(NoAuthError):
                eve.create(f"/{root[2]}/{path}")
            refused += 1
        with pytest.raises(NoAuthError):
            eve.set(f"/{root[2]}/applications/cache", b"{}")
        assert refused == 13
    finally:
        eve.stop()
        eve.close()


@contextmanager
def eve(closed: Fleet, who: str) -> Iterator[KazooClient]:
    """Whoever has the credentials of ``who``, without our code."""
    client = KazooClient(
        closed.open.zookeeper.partition("/")[0], auth_data=[("digest", (closed.folder / who).read_text().strip())]
    )
    client.start()
    yield client
    client.stop()
    client.close()


async def test_a_subscriber_owns_no_log_and_takes_none_from_its_owner(closed: Fleet) -> None:
    root = f"/{closed.open.zookeeper.partition('/')[2]}"
    async with closed.client("publisher") as publisher:
        claim = await publisher.own_log(GROUP, DB1, server="", why="")
        entry = await publisher.register_candidate(GROUP, CANDIDATE)
        await publisher.write_flows(FLOW)
        log = f"{root}/logs/{GROUP}"

        def attack() -> None:
            with eve(closed, "subscriber-cache") as client:
                for path in (f"{log}/owner", claim.fence(), f"{log}/term", f"{log}/candidates/{CANDIDATE.name}"):
                    for refused in (client.get, client.delete, partial(client.set, value=b"x")):
                        with pytest.raises(NoAuthError):
                            refused(path)
                    with pytest.raises(NoAuthError):
                        client.set_acls(path, OPEN_ACL_UNSAFE)
                for path in ("move", "claims/eve", "candidates/eve@h", "state"):
                    with pytest.raises(NoAuthError):
                        client.create(f"{log}/{path}", b"", ephemeral=True)
                for path in ("publishers/shop", "hosts/eve", "logs/eve", "history/e", "applications/cache/flows/eve"):
                    with pytest.raises(NoAuthError):
                        client.create(f"{root}/{path}", b"")
                with pytest.raises(NoAuthError):
                    client.delete(root, recursive=True)

        await asyncio.to_thread(attack)
        assert (claim.held, entry.held, claim.term) == (True, True, 1)
        await publisher.write_flows(FLOW)


async def test_an_entry_that_is_closed_to_others_is_left_out_by_name(
    closed: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """Red before: nobody could list subscribers any more, of no application, and no operator could make credentials.

    Who makes a node decides who may do what there.
    """
    root = f"/{closed.open.zookeeper.partition('/')[2]}"
    path = f"{root}/applications/cache/subscribers/closed"
    mine = [make_digest_acl("eve", "evil", all=True)]
    async with closed.client("publisher") as publisher, closed.client("subscriber-cache") as subscriber:
        await subscriber.register_subscriber(A)
        with eve(closed, "subscriber-cache") as client:
            client.add_auth("digest", "eve:evil")
            client.create(path, b"x", acl=mine)
            client.create(f"{path}/below", b"", acl=mine)
            deep = f"{path.rpartition('/')[0]}/deep{'/x' * 1200}"
            client.create(deep, b"", makepath=True)
            assert await publisher.subscribers() == (A,)
            assert await soon(publisher.watch_subscribers("cache")) == (A,)
            assert publisher.problems[path].code == "coordination-refused"
            assert access_state(closed.named("operator")).locked_out == ()
            make_identities(closed.named("operator"), closed.folder)
            assert f"{path} keeps the rights that its maker gave it" in caplog.text


async def test_without_credentials_or_with_others_the_message_says_whose_move_it_is(closed: Fleet) -> None:
    with pytest.raises(ConfigError, match="closed to processes without credentials") as caught:
        async with closed.client():
            pass
    assert "WORMHOLE_COORDINATOR_AUTH_FILE" in str(caught.value.hint)
    make_credentials(closed.folder / "eve", "operator")
    with pytest.raises(ConfigError, match=r"does not know the credentials in .*eve") as caught:
        async with closed.client("eve"):
            pass
    assert "operator" in str(caught.value.hint)
    with pytest.raises(ConfigError, match=r"does not know the credentials in .*publisher as those of an operator"):
        close_to_others(closed.named("publisher"))


async def test_until_it_is_closed_both_kinds_work_and_who_would_be_locked_out_is_known(fleet: Fleet) -> None:
    make_identities(fleet.open, fleet.folder)
    async with fleet.client() as old, fleet.client("publisher") as new:
        await old.register_subscriber(A)
        await new.register_publisher(DB1)
        assert await soon(new.watch_subscribers("cache")) == (A,)
        assert await old.publishers() == (DB1,)
        seen = access_state(fleet.named("operator"))
        assert not seen.closed
        assert [path.rpartition("/")[2] for path in seen.locked_out] == [A.id]
        close_to_others(fleet.named("operator"))
        # What was made before and what a client that was connected before makes from here on: both closed.
        await eventually(lambda: new._session._client.access.closed, "the client learns that it is closed")
        await new.write_flows(FLOW)
        assert await new.flows() == FLOW
        assert not await new._nodes.open_to_all(new._paths.flow("cache", "db1"))
        assert await new.warnings() == ()
        with pytest.raises(ConfigError, match="NoAuthError"):
            await old.flows()
    assert access_state(fleet.named("operator")).closed


async def test_an_application_that_was_added_gets_its_rights_at_once(closed: Fleet) -> None:
    added = MORE + '\n[applications.later]\ndataset = "shop"\nstart = "latest"\n'
    async with closed.client("operator") as operator:
        await publish_config(config(added), operator)
    before = (closed.folder / "publisher").read_text()
    files = make_identities(closed.named("operator"), closed.folder)
    assert "subscriber-later" in files
    assert (closed.folder / "publisher").read_text() == before
    async with closed.client("subscriber-later") as subscriber:
        assert (await subscriber.application("later")).start == "latest"


async def test_a_root_that_an_earlier_release_closed_gets_what_is_new_from_any_operator(closed: Fleet) -> None:
    async with closed.client("operator") as operator:
        path = operator._paths.logs
        await operator._session.call("make it older", lambda client: client.delete_async(path))
    async with closed.client("publisher") as publisher:
        watch = publisher.watch_log(GROUP)
        assert (await soon(watch)).owner is None
        for refused in (
            publisher.own_log(GROUP, DB1, server="", why=""),
            publisher.register_candidate(GROUP, CANDIDATE),
        ):
            with pytest.raises(ConfigError, match=f"{path} is missing in ZooKeeper") as caught:
                await refused
            assert "the operator's credentials" in str(caught.value.hint)
        async with closed.client("operator"):
            pass
        await publisher.own_log(GROUP, DB1, server="", why="")
        assert (await soon(watch, lambda owners: owners.owner is not None)).owner == DB1


async def test_credentials_of_another_folder_are_refused(closed: Fleet, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="NoAuthError"):
        make_identities(closed.open, tmp_path / "other")
    # With the operator's it is how all of them are replaced.
    make_identities(closed.named("operator"), tmp_path / "other")
    with pytest.raises(ConfigError, match="does not know the credentials"):
        async with closed.client("publisher"):
            pass


def tree(client: KazooClient, path: str = "/") -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from tree(client, f"{path.rstrip('/')}/{name}")


def test_a_private_server_takes_over_what_was_open_or_of_lost_credentials(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        client = KazooClient(server.hosts)
        client.start()
        client.create("/wormhole/applications/cache", b"kept", makepath=True)
        client.create("/somebody-else")
        client.stop()
        client.close()
    os.chmod(tmp_path, 0o755)
    (tmp_path / "zoo.cfg").chmod(0o644)
    secrets = []
    for _ in range(2):
        with EmbeddedZooKeeper(tmp_path, private=True) as server:
            assert server.auth_file is not None
            secrets.append(server.auth_file.read_text().strip())
            owner = KazooClient(server.hosts, auth_data=[("digest", secrets[-1])])
            owner.start()
            assert owner.get("/wormhole/applications/cache")[0] == b"kept"
            holders = {path: {one.id.id for one in owner.get_acls(path)[0]} for path in tree(owner)}
            assert {"/", "/somebody-else", "/zookeeper/quota", "/zookeeper/config", "/wormhole/access"} < set(holders)
            assert len(set().union(*holders.values())) == 1
            owner.stop()
            owner.close()
            assert secrets[-1].partition(":")[2] not in server.log.read_text()
            server.auth_file.unlink()
        assert tmp_path.stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "zoo.cfg").stat().st_mode & 0o777 == 0o600
    assert secrets[0] != secrets[1]
