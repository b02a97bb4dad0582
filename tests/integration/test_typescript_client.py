"""``clients/typescript``: built, linted and tested, and as a subscriber of a publisher."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.clients import TYPESCRIPT as CLIENT
from scripts.clients import npm
from scripts.prepare import ROOT
from tests.integration.publisher.conftest import World
from tests.support.certificates import Authority
from tests.support.clocks import FAST, fast_clock
from tests.support.conforming_client import client
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.typescript_client import client_command
from wormhole.host.trust import Trust
from wormhole.model.position import LogPosition

KEY = ("app", "log.t")


@pytest.fixture
async def world() -> World:
    world = World(fast_clock(), 120.0 * FAST, attaches=True)
    world.application()
    return world


def _stored(world: World) -> LogPosition | None:
    """The place of the stored datamarker."""
    stored = world.markers.records.get(KEY)
    return None if stored is None else stored.marker.order


def test_the_generated_code_is_what_the_messages_give(typescript: Path, tmp_path: Path) -> None:
    generated = tmp_path / "generated"
    generated.mkdir()
    command = json.loads((CLIENT / "package.json").read_text())["scripts"]["generate"].split()
    command = [argument.replace("=src/generated", f"={generated}") for argument in command]
    command = [argument.replace("=../../proto", f"={ROOT / 'proto'}") for argument in command]
    subprocess.run([sys.executable, *command[1:]], cwd=typescript, check=True)
    fresh = {path.relative_to(generated): path.read_bytes() for path in generated.rglob("*.ts")}
    committed = CLIENT / "src" / "generated"
    assert fresh == {path.relative_to(committed): path.read_bytes() for path in committed.rglob("*.ts")}


def test_the_programs_of_its_page_compile(typescript: Path) -> None:
    """Strictly, with the package as an application has it."""
    programs = re.findall(r"```ts\n(.*?)```", (ROOT / "docs" / "client-typescript.md").read_text(), re.DOTALL)
    assert len(programs) == 3
    folder = typescript / "build" / "page"
    folder.mkdir()
    for number, program in enumerate(programs):
        (folder / f"program{number}.ts").write_text(program)
    config = {"extends": "../../tsconfig.json", "compilerOptions": {"rootDir": ".", "noEmit": True}, "include": ["."]}
    (folder / "tsconfig.json").write_text(json.dumps(config))
    npm(typescript, "exec", "--", "tsc", "-p", "build/page")


def test_it_is_built_linted_and_tested(typescript: Path) -> None:
    npm(typescript, "run", "lint")
    npm(typescript, "test")
    assert (typescript / "dist" / "index.d.ts").exists()


def test_it_passes_every_case_of_the_conformance_kit(typescript: Path) -> None:
    client = f"node {typescript / 'build' / 'conformance' / 'client.js'}"
    declared = CLIENT / "conformance" / "client.toml"
    kit = [sys.executable, "-m", "conformance", "--client", client, "--declares", str(declared), "--patience", "60"]
    ran = subprocess.run(kit, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


def test_the_lock_file_names_no_registry() -> None:
    packages = json.loads((CLIENT / "package-lock.json").read_text())["packages"]
    assert all("resolved" not in package for package in packages.values())
    assert all("integrity" in package for name, package in packages.items() if name)


async def test_rows_come_in_order_and_are_acknowledged(world: World, typescript: Path) -> None:
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        for number in range(50):
            world.commit(f"a{number}", f"b{number}")
        async with client(client_command(typescript), publisher.listener.address) as first:
            await eventually(lambda: len(first.ids) == 100, "all rows")
            end = world.commit("last")
            await eventually(lambda: _stored(world) == end.order, "its datamarker")
            await first.stop()
        async with client(client_command(typescript), publisher.listener.address) as second:
            world.commit("next")
            await eventually(lambda: second.ids, "what came since")
    assert first.ids == [f"mem:{tx}:{i}" for tx in range(1, 51) for i in (0, 1)] + ["mem:51:0"]
    assert second.ids == ["mem:52:0"]


@pytest.mark.parametrize("kind", ["updates", "batches"])
async def test_a_loop_acknowledges_with_its_next_step(world: World, typescript: Path, kind: str) -> None:
    """The update at which the loop is left comes again, to the one that ends by its signal."""

    async def looped(address: str, *last: str) -> asyncio.subprocess.Process:
        program = typescript / "build" / "test" / "programs" / "looped.js"
        command = ("node", str(program), address, kind, *last)
        return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        first = await looped(publisher.listener.address, "mem:2:0")
        assert first.stdout is not None
        end = world.commit("a")
        assert await first.stdout.readline() == b"mem:1:0\n"
        await eventually(lambda: _stored(world) == end.order, "its step is acknowledged")
        world.commit("b")
        assert (await first.communicate())[0] == b"mem:2:0\nleft\n"
        assert first.returncode == 0
        assert _stored(world) == end.order
        second = await looped(publisher.listener.address)
        assert second.stdout is not None
        assert await second.stdout.readline() == b"mem:2:0\n"
        second.terminate()
        assert (await second.communicate())[0] == b"left\n"
        assert second.returncode == 0


async def test_a_lost_connection_is_made_anew(world: World, typescript: Path) -> None:
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        host, _, port = publisher.listener.address.rpartition(":")
        with FaultProxy(host, int(port)) as proxy:
            async with client(client_command(typescript), f"{proxy.host}:{proxy.port}") as told:
                end = world.commit("a")
                for key in ("b", "c"):
                    await eventually(lambda end=end: _stored(world) == end.order, "it is stored")  # type: ignore[misc]
                    await asyncio.to_thread(proxy.cut)
                    end = world.commit(key)
                await eventually(lambda: len(told.ids) == 3, "it goes on")
    assert told.ids == ["mem:1:0", "mem:2:0", "mem:3:0"]


async def test_it_is_told_why_it_is_not_admitted(world: World, typescript: Path) -> None:
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        async with client(client_command(typescript), publisher.listener.address, application="other") as told:
            await eventually(lambda: told.of("error"), "the reason")
    assert told.of("error")[0]["code"] == "application-unknown"


@pytest.mark.parametrize(("id_", "name"), [("s1", "db1"), ("s2", "db1"), ("s1", "db2")])
async def test_with_tls_each_side_proves_its_name(
    world: World, typescript: Path, tmp_path: Path, id_: str, name: str
) -> None:
    authority = await asyncio.to_thread(Authority, tmp_path)
    mine = await asyncio.to_thread(authority.issue, "db1")
    files = await asyncio.to_thread(authority.issue, "s1")
    world.trust = await asyncio.to_thread(lambda: Trust(mine, look_s=0.01))
    world.commit("a")
    tls = {"cert": str(files.cert), "key": str(files.key), "ca": str(files.ca), "publisher": name}
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        async with client(client_command(typescript), publisher.listener.address, id=id_, tls=tls) as told:
            if (id_, name) == ("s1", "db1"):
                await eventually(lambda: told.ids, "its row")
            elif name == "db1":
                await eventually(lambda: told.of("error"), "the publisher's refusal")
                assert told.of("error")[0]["code"] == "certificate-refused"
            else:
                await eventually(lambda: publisher.listener.address, "it listens")
                await told.stop()
                assert not told.ids
