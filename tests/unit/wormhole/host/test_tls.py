"""TLS: trust, certificates that are read anew, and peers that are checked."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509

from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port
from wormhole.config import TlsFiles
from wormhole.host import peer_check
from wormhole.host.certificates import Certificate, Pems, Trusted, day
from wormhole.host.peer_check import examine, explain
from wormhole.host.tls import check_listen, is_loopback, open_trust, target_options
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError, StreamBroken
from wormhole.push.dial import is_refused

# --- TLS: who is refused, what is said about wrong files, and where listening without it is allowed


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7000", True),
        ("127.9.9.9:1", True),
        ("localhost:7000", True),
        ("LOCALHOST.:7000", True),
        ("[::1]:7000", True),
        ("::1", True),
        ("[::ffff:127.0.0.1]:7000", True),
        ("unix:/run/wormhole.sock", True),
        ("localhost", True),
        ("0.0.0.0:7000", False),
        ("[::]:7000", False),
        ("10.0.0.1:7000", False),
        ("localhost.example:7000", False),
        ("example.com", False),
        (":7000", False),
        ("", False),
    ],
)
def test_loopback_is_decided_without_dns(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_listening_beyond_loopback_needs_tls_or_an_explicit_word(tmp_path: Path) -> None:
    tls = TlsFiles(cert=tmp_path / "c", key=tmp_path / "k", ca=tmp_path / "a")
    check_listen("127.0.0.1:0", None)
    check_listen("0.0.0.0:7000", tls)
    check_listen("0.0.0.0:7000", None, insecure=True)
    with pytest.raises(ConfigError, match=r'admin_listen = "0\.0\.0\.0:7000"') as caught:
        check_listen("0.0.0.0:7000", None, setting="admin_listen")
    assert "insecure = true" in str(caught.value.hint)


def test_every_wrong_file_is_named_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("nonsense")
    (tmp_path / "key").write_text("-----BEGIN CERTIFICATE-----\n")
    tls = TlsFiles(cert=tmp_path / "cert", key=tmp_path / "key", ca=tmp_path / "missing")
    with pytest.raises(ConfigError) as caught:
        open_trust(tls)
    text = str(caught.value)
    assert "tls.cert" in text
    assert "holds no PEM CERTIFICATE" in text
    assert "holds no PEM PRIVATE KEY" in text
    assert "tls.ca" in text
    assert "No such file" in text


async def _echo(request: bytes, _context: object) -> bytes:
    return request


@asynccontextmanager
async def serving(credentials: grpc.ServerCredentials) -> AsyncIterator[str]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler}),))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def call(address: str, credentials: grpc.ChannelCredentials, options: Sequence[tuple[str, str]] = ()) -> bytes:
    async with grpc.aio.secure_channel(address, credentials, options=list(options)) as channel:
        echo: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test.Echo/Echo")
        return await echo(b"hello", timeout=PATIENCE_S)


async def test_the_registered_name_is_what_the_certificate_must_carry(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = (await asyncio.to_thread(Trust, authority.issue("cache-a"))).server_credentials()
    client = (await asyncio.to_thread(Trust, authority.issue("publisher"))).channel_credentials()
    async with serving(server) as address:
        assert await call(address, client, target_options("cache-a")) == b"hello"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(address, client, target_options("cache-b"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_without_certificate_or_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "their-ca")
    stranger = theirs.issue("publisher").model_copy(update={"ca": ours.ca})
    server = (await asyncio.to_thread(Trust, ours.issue("cache-a"))).server_credentials()
    without = grpc.ssl_channel_credentials(root_certificates=ours.ca.read_bytes())
    foreign = (await asyncio.to_thread(Trust, stranger)).channel_credentials()
    async with serving(server) as address:
        for credentials in (without, foreign):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(address, credentials, target_options("cache-a"))


# --- Files that are followed: by content, within bounds, and never worse than before. The rest:
# tests/hostile/test_certificates.py


def test_content_counts_and_not_time_or_size(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("one")
    trust = Trust(tls, look_s=0)
    first = trust.current()
    before = tls.cert.stat()
    os.utime(tls.cert, (1, 1))
    assert trust.current() is first
    padded = Authority(tmp_path / "b").issue("one")
    for name in ("cert", "key", "ca"):
        getattr(tls, name).write_bytes(getattr(padded, name).read_bytes())
    os.utime(tls.cert, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert trust.current() is not first


def test_files_are_read_once_in_a_while(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("one")
    trust = Trust(tls, look_s=3600)
    first = trust.current()
    Authority(tmp_path / "b").issue("one")
    tls.cert.unlink()
    assert trust.current() is first
    assert trust.reloads.refused == 0


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("one")
    with pytest.raises(ConfigError, match=r'tls\.ca = "/dev/zero": is larger than 1 MiB'):
        Trust(tls.model_copy(update={"ca": Path("/dev/zero")}))
    with pytest.raises(ConfigError, match=r'tls\.crl = "/dev/zero": is larger than 16 MiB'):
        Trust(tls.model_copy(update={"crl": Path("/dev/zero")}))


def test_a_context_is_kept_until_the_files_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = authority.issue("one")
    trust = Trust(tls, look_s=0)
    first = trust.context(ssl.PROTOCOL_TLS_CLIENT)
    assert trust.context(ssl.PROTOCOL_TLS_CLIENT) is first
    assert trust.context(ssl.PROTOCOL_TLS_CLIENT, ("h2",)) is not first
    authority.issue("one")
    assert trust.context(ssl.PROTOCOL_TLS_CLIENT) is not first


def test_a_start_with_an_expired_certificate_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trust = Trust(Authority(tmp_path).issue("one", days=(-9, -2)))
    trust.warn()
    (record,) = caplog.records
    assert "tls.cert, CN=one" in record.getMessage()
    assert "expired on 20" in record.getMessage()


# --- What is said of an address that cannot be looked at. What is found there: tests/hostile/test_certificates.py


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(Authority(tmp_path).issue("db1"))


async def test_no_process_listens(trust: Trust) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(StreamBroken, match=r"cannot be reached \(Connection refused\)") as caught:
        await examine(address, trust)
    assert is_refused(caught.value)
    assert await explain(address, "", trust) == "", "not the certificates' fault"


async def test_one_that_speaks_no_tls(trust: Trust) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_answer_plainly, args=(listening,))
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(StreamBroken, match=r"cannot be reached \(TLS: ") as caught:
            await examine(address, trust)
        await asyncio.to_thread(thread.join)
    assert not is_refused(caught.value)


async def test_one_that_says_nothing(trust: Trust, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peer_check, "_TIMEOUT_S", 0.05)
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(StreamBroken, match="no answer within"):
            await examine(f"unix:{path}", trust)


def _answer_plainly(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


# --- What files amount to, and whose certificate they accept, at any time of day


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
