"""The name that ``doctor`` prints for the option ``publishers``, from a real certificate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from tests.support.certificates import Authority
from tests.support.publisher_status import status
from wormhole.cli.admin_client import Answer
from wormhole.cli.certificates import name_in, named
from wormhole.trust import Trust


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


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ({"subject": ((("commonName", "db1"),),), "subjectAltName": (("DNS", "h"), ("DNS", "db1"))}, "db1"),
        ({"subject": ((("commonName", "Shop Inc"),),), "subjectAltName": (("DNS", "localhost"), ("DNS", "h"))}, "h"),
        ({"subject": ((("organizationName", "Shop"),), (("commonName", "db1"),))}, "db1"),
        ({"subjectAltName": (("IP Address", "127.0.0.1"),)}, ""),
        ({}, ""),
    ],
)
def test_which_name_of_a_certificate(certificate: dict[str, object], name: str) -> None:
    assert name_in(certificate) == name
