"""What doctor and config check show of certificates."""

from __future__ import annotations

from pathlib import Path

from tests.support.certificates import Authority
from wormholectl.installation import Seen, judge
from wormholectl.tls_files import report_on


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
    report = judge(Seen("shop.toml", "1", tls=found))
    assert [one.what for one in report.findings if one.check == "certificates"] == [cert, ca, crl]


def test_what_is_wrong_is_a_problem_with_a_next_step(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue("db1", days=(-9, -2))
    found = report_on(expired)
    assert found is not None
    assert found.facts[-1] == "tls.crl: none, so no certificate is revoked"
    (fault,) = found.faults
    assert "CN=db1" in fault
    assert "expired on 20" in fault
    problems = [one for one in judge(Seen("shop.toml", "1", tls=found)).findings if one.what == fault]
    assert problems[0].next_step
    expired.key.unlink()
    found = report_on(expired)
    assert found is not None
    assert "cannot be read: No such file" in found.faults[0]
    assert report_on(None) is None
