"""What files amount to, and whose certificate they accept, at any time of day."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.certificates import Authority
from wormhole.config import TlsFiles
from wormhole.host.certificates import Certificate, Pems, Trusted, day

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


def trusted(tls: TlsFiles, *lists: Path) -> Trusted:
    crl = b"".join(one.read_bytes() for one in lists) if lists else None
    return Trusted(Pems(tls.cert.read_bytes(), tls.key.read_bytes(), tls.ca.read_bytes(), crl))


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "other", "other-ca")


def test_dates_hold_to_the_moment(ours: Authority) -> None:
    found = trusted(ours.issue("one"))
    peer = Certificate.read(ours.issue("two").cert.read_bytes())
    assert found.refusal(peer, peer.not_after) == found.refusal(peer, peer.not_before) == ""
    assert found.refusal(peer, peer.not_after + HOUR).endswith(f"expired on {day(peer.not_after)}")
    assert found.refusal(peer, peer.not_before - HOUR).endswith(f"is valid only from {day(peer.not_before)}")


def test_a_list_is_of_an_authority_or_not_used(ours: Authority, other: Authority, tmp_path: Path) -> None:
    tls = ours.issue("one")
    with pytest.raises(ValueError, match=r"tls\.crl: the list of CN=other-ca is not signed by an authority of tls\.ca"):
        trusted(tls, other.revoke())
    forger = Authority(tmp_path / "forged")  # it has the same name and another key
    with pytest.raises(ValueError, match=r"the list of CN=test-ca is not signed by an authority"):
        trusted(tls, forger.revoke())
    with pytest.raises(ValueError, match="holds no PEM X509 CRL"):
        trusted(tls, tls.cert)


def test_a_list_of_a_kind_that_says_less_is_refused_by_name(ours: Authority) -> None:
    part = x509.IssuingDistributionPoint(
        full_name=None,
        relative_name=None,
        only_contains_user_certs=True,
        only_contains_ca_certs=False,
        only_some_reasons=None,
        indirect_crl=False,
        only_contains_attribute_certs=False,
    )
    for extension in (x509.DeltaCRLIndicator(1), part):
        with pytest.raises(
            ValueError, match=r"has the critical extension .*: only whole lists of one issuer are supported"
        ):
            trusted(ours.issue("one"), ours.revoke(extension=extension))


def test_a_serial_number_counts_for_its_issuer_only(ours: Authority, other: Authority) -> None:
    mine, theirs = ours.issue("one"), other.issue("two")
    both = mine.ca.read_bytes() + theirs.ca.read_bytes()
    peer = Certificate.read(theirs.cert.read_bytes())
    of_ours = ours.revoke(theirs.cert)
    pems = Pems(mine.cert.read_bytes(), mine.key.read_bytes(), both, of_ours.read_bytes())
    assert "tls.crl has no list of CN=other-ca" in Trusted(pems).refusal(peer, NOW)
    lists = of_ours.read_bytes() + other.revoke().read_bytes()
    assert Trusted(Pems(pems.cert, pems.key, both, lists)).refusal(peer, NOW) == ""
    lists = of_ours.read_bytes() + other.revoke(theirs.cert).read_bytes()
    assert "was revoked on" in Trusted(Pems(pems.cert, pems.key, both, lists)).refusal(peer, NOW)


def test_a_revoked_certificate_stays_revoked_in_a_list_that_is_out_of_date(ours: Authority) -> None:
    bad, good = ours.issue("bad"), ours.issue("good")
    found = trusted(ours.issue("one"), ours.revoke(bad.cert))
    late = NOW + 2 * HOUR
    assert "was revoked on" in found.refusal(Certificate.read(bad.cert.read_bytes()), late)
    assert "tls.crl is out of date" in found.refusal(Certificate.read(good.cert.read_bytes()), late)
    assert found.revoked(Certificate.read(good.cert.read_bytes())) == "", "an open stream goes on"


def test_what_is_wrong_with_our_own(ours: Authority, other: Authority) -> None:
    good = trusted(ours.issue("one"), ours.revoke())
    assert good.faults(NOW) == []
    assert [text.split(",")[0] for text in good.faults(NOW + 2 * HOUR)] == ["tls.crl: the list of CN=test-ca was to be replaced by " + day(good.ends()["crl"])]  # fmt: skip  # noqa: E501
    foreign = trusted(other.issue("one").model_copy(update={"ca": ours.ca}))
    assert "is issued by CN=other-ca, which is not in tls.ca" in foreign.faults(NOW)[0]
    mine = ours.issue("mine")
    assert "was revoked on" in trusted(mine, ours.revoke(mine.cert)).faults(NOW)[0]
    assert set(good.ends()) == {"cert", "ca", "crl"}


def test_a_key_of_another_pair_and_an_encrypted_one(ours: Authority) -> None:
    one, two = ours.issue("one"), ours.issue("two")
    with pytest.raises(ValueError, match=r"tls\.key is not the private key of tls\.cert, CN=one"):
        trusted(one.model_copy(update={"key": two.key}))
    one.key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(ValueError, match="without a password is needed"):
        trusted(one)
    two.cert.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(ValueError, match=r"tls\.cert: a certificate in it cannot be read"):
        trusted(two)


@pytest.mark.parametrize(
    ("name", "is_for"),
    [
        ("db1.shop", True),
        ("DB1.Shop.", True),
        ("a.cache", True),
        ("a.b.cache", False),
        ("cache", False),
        ("db2", False),
    ],
)
def test_names_as_a_client_compares_them(ours: Authority, name: str, is_for: bool) -> None:
    plain, wild = ours.issue("db1.shop", hosts=False), ours.issue("*.cache", hosts=False, file="wild")
    found = [Certificate.read(one.cert.read_bytes()).is_for(name) for one in (plain, wild)]
    assert any(found) is is_for


def _with_der(path: Path, old: bytes, new: bytes) -> bytes:
    head, *body, tail = path.read_bytes().strip().split(b"\n")
    der = base64.b64decode(b"".join(body))
    assert old in der
    return b"\n".join((head, base64.encodebytes(der.replace(old, new)).strip(), tail, b""))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (bytes.fromhex("a003020102"), bytes.fromhex("a00302017f")),  # the version
        (bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06072a8648ce3d0203")),  # the kind of key
        (bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030106")),  # the curve
    ],
    ids=["version", "kind of key", "curve"],
)
def test_what_the_library_does_not_know_is_reported_like_any_other_fault(
    ours: Authority, old: bytes, new: bytes
) -> None:
    tls = ours.issue("one")
    tls.cert.write_bytes(_with_der(tls.cert, old, new))
    with pytest.raises(ValueError, match=r"version|[Uu]nknown|not supported|tls\.cert"):
        trusted(tls)
