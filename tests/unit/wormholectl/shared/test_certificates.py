"""The name that ``doctor`` prints for the option ``publishers``, from a real certificate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from tests.support.certificates import Authority
from tests.support.publisher_status import status
from wormhole.admin.admin_service import Answer
from wormhole.host.trust import Trust
from wormholectl.doctor.installation import Survey, judge
from wormholectl.shared.certificates import name_in, named, report_on


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
        Answer(f"localhost:{port}", status("db3"), "", other),  # another authority signed it
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


def test_names_dates_issuer_and_lists(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    found = report_on(authority.issue("db1", crl=authority.revoke(authority.issue("gone").cert)))
    assert found is not None
    cert, ca, crl = found.facts
    assert cert.startswith("tls.cert: CN=db1 (serial ")
    assert "names db1, localhost, 127.0.0.1, issued by CN=test-ca, valid 20" in cert
    assert ca.startswith("tls.ca: CN=test-ca (serial ")
    assert crl.startswith("tls.crl: list of CN=test-ca, 1 certificates, of 20")
    assert found.faults == ()
    report = judge(Survey("shop.toml", "1", tls=found))
    assert [one.what for one in report.findings if one.check == "certificates"] == [cert, ca, crl]


def test_what_is_wrong_is_a_problem_with_a_next_step(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue("db1", days=(-9, -2))
    found = report_on(expired)
    assert found is not None
    assert found.facts[-1] == "tls.crl: none, so no certificate is revoked"
    (fault,) = found.faults
    assert "CN=db1" in fault
    assert "expired on 20" in fault
    problems = [one for one in judge(Survey("shop.toml", "1", tls=found)).findings if one.what == fault]
    assert problems[0].next_step
    expired.key.unlink()
    found = report_on(expired)
    assert found is not None
    assert "cannot be read: No such file" in found.faults[0]
    assert report_on(None) is None
