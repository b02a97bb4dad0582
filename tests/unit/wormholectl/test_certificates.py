"""The name that ``doctor`` prints for the option ``publishers``, from a real certificate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from tests.support.certificates import Authority
from tests.support.publisher_status import status
from wormhole.host.trust import Trust
from wormholectl.admin_client import Answer
from wormholectl.certificates import name_in, named


async def test_the_name_comes_from_the_certificate_that_the_publisher_shows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, theirs = authority.issue("maria"), authority.issue("db1-publisher")
    other = Authority(tmp_path / "other").issue("maria")
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", (await asyncio.to_thread(Trust, theirs)).server_credentials())
    await server.start()
    address = f"127.0.0.1:{port}"
    answers = [
        Answer(address, status("db1"), "", mine),
        Answer("127.0.0.1:1", status("db2"), "", mine),  # it went since
        Answer(f"localhost:{port}", status("db3"), "", other),  # of another authority
        Answer(address, status("db4")),  # without TLS
        Answer("unix:/run/wormhole.sock", status("db5"), "", mine),
    ]
    try:
        assert await asyncio.to_thread(named, answers) == {address: "db1-publisher"}
    finally:
        await server.stop(None)


async def test_a_revoked_certificate_is_no_name_to_write_down(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, theirs = authority.issue("maria"), authority.issue("db1-publisher")
    crl = authority.revoke(theirs.cert)
    server = grpc.aio.server()
    trust = await asyncio.to_thread(Trust, theirs)
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', trust.server_credentials())}"
    await server.start()
    try:
        answer = Answer(address, status("db1"), "", mine.model_copy(update={"crl": crl}))
        assert await asyncio.to_thread(named, [answer]) == {}
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("common", "hosts", "name"),
    [
        (["db1"], ["h", "db1"], "db1"),
        (["Shop Inc"], ["localhost", "h"], "h"),
        (["db1"], [], "db1"),
        ([], [], ""),
    ],
)
def test_which_name_of_a_certificate(common: list[str], hosts: list[str], name: str) -> None:
    assert name_in(common, hosts) == name
