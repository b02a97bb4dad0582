"""``wormholectl subscribe`` over TLS, with a certificate and with a token, at a publisher that proves its name."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.integration.publisher.conftest import World
from tests.support.certificates import Authority
from tests.support.clocks import FAST, fast_clock
from tests.support.eventually import eventually
from tests.support.ports import free_port
from wormhole.coordination.access_tokens import new_token
from wormhole.host.trust import Trust

Ended = tuple[int | None, str, str]
"""The exit code, the output and the errors."""


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    return await asyncio.to_thread(Authority, tmp_path)


@pytest.fixture
async def world(authority: Authority) -> World:
    """A publisher with the certificate ``db1``, which takes certificates and tokens."""
    one = World(fast_clock(), 120.0 * FAST, attaches=True)
    one.settings["token_listen"] = f"127.0.0.1:{free_port()}"
    mine = await asyncio.to_thread(authority.issue, "db1")
    one.trust = await asyncio.to_thread(lambda: Trust(mine, look_s=0.01))
    one.application()
    return one


async def subscribed(world: World, authority: Authority, *options: str, by_token: bool, token: str = "") -> Ended:
    """Run the command until it printed one update, or ended by itself."""
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.token_address, "it listens")
        listener = publisher.listener
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wormholectl", "subscribe", "app", "--json", "--limit", "1"),
            *("--publishers", listener.token_address if by_token else listener.address),
            *("--tls-ca", str(authority.ca), *options),
            env={"PATH": "/usr/bin:/bin", **({"WORMHOLE_TOKEN": token} if token else {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        ended = asyncio.ensure_future(process.communicate())
        while not ended.done():  # it shows what is committed from its beginning on
            world.commit("a")
            await asyncio.wait({ended}, timeout=0.1)
        out, err = ended.result()
        return process.returncode, out.decode(), err.decode()


async def certificate(authority: Authority, name: str) -> list[str]:
    files = await asyncio.to_thread(authority.issue, name)
    return ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]


async def test_with_a_certificate(world: World, authority: Authority) -> None:
    mine = await certificate(authority, "ann")
    code, out, err = await subscribed(world, authority, *mine, "--id", "ann", "--tls-name", "db1", by_token=False)
    assert code == 0, err
    assert json.loads(out)["table"] == "t"


async def test_with_a_token(world: World, authority: Authority) -> None:
    text, token = new_token(0.0, 0.0)
    world.coordination.tokens["app"] = (token,)
    code, out, err = await subscribed(world, authority, "--tls-name", "db1", by_token=True, token=text)
    assert code == 0, err
    assert json.loads(out)["table"] == "t"
    assert text not in out + err


@pytest.mark.parametrize(
    ("name", "given", "code", "exits"),
    [("db2", "", "certificate-refused", 2), ("db1", "wormhole_x", "token-refused", 3)],
    ids=["a publisher of another name", "another token"],
)
async def test_what_is_refused(
    world: World, authority: Authority, name: str, given: str, code: str, exits: int
) -> None:
    text, token = new_token(0.0, 0.0)
    world.coordination.tokens["app"] = (token,)
    ended, out, err = await subscribed(world, authority, "--tls-name", name, by_token=True, token=given or text)
    assert (ended, out) == (exits, "")
    assert f"[{code}]" in err
    assert text not in err


async def test_the_id_is_one_of_the_certificate(world: World, authority: Authority) -> None:
    mine = await certificate(authority, "ann")
    ended, out, err = await subscribed(world, authority, *mine, "--tls-name", "db1", by_token=False)
    assert (ended, out) == (3, "")
    assert "[certificate-refused]" in err
