"""Logins: what is sent to which server, and what a stranger learns."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from pymysql import _auth

from datastores.mysql.server import handshake
from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect, login_of
from datastores.mysql.server.login import Login, load_rsa_key
from datastores.mysql.server.url import TlsMode
from tests.support.given import given
from tests.support.hostile_mysql import serving
from tests.support.mysql_impostor import Impostor, impostor
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError

# --- login ---


SALT = b"12345678901234567890"
OK = b"\0\0\0\2\0\0\0"
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
KNOWN, UNKNOWN = (lambda: ""), (lambda: "it is a stranger")


def login(
    *,
    secure: bool = False,
    doubt: Callable[[], str] = UNKNOWN,
    password: str = "secret é",
    exposed: bool = False,
    pinned: bool = False,
) -> Login:
    address = Address("db1", 3306, "u", password, exposed=exposed)
    return Login(address, secure=secure, doubt=doubt, server_key=load_rsa_key(PEM) if pinned else None)


def switch(plugin: bytes, data: bytes = SALT + b"\0") -> bytes:
    return b"\xfe" + plugin + b"\0" + data


def decrypted(answer: bytes | None) -> bytes:
    assert answer is not None
    mixed = KEY.decrypt(answer, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
    return bytes(byte ^ SALT[i % 20] for i, byte in enumerate(mixed))


def test_a_scramble_is_for_every_server() -> None:
    password = "secret é".encode()
    for plugin, scramble in (
        ("mysql_native_password", _auth.scramble_native_password),
        ("caching_sha2_password", _auth.scramble_caching_sha2),
    ):
        exchange = login()
        assert exchange.begin(plugin, SALT) == (plugin, scramble(password, SALT))
        assert exchange.answer(switch(plugin.encode())) == scramble(password, SALT)
        assert exchange.answer(OK) is None
        assert exchange.over
        assert not exchange.gave_password
        assert exchange.may_be_asked == (plugin == "caching_sha2_password")


def test_what_the_cache_knows_needs_no_password() -> None:
    exchange = login()
    exchange.begin("caching_sha2_password", SALT)
    assert exchange.answer(b"\1\3") is None
    assert exchange.answer(OK) is None
    assert exchange.over


def asked(exchange: Login, plugin: bytes) -> bytes | None:
    """The answer to a server that wants the password itself."""
    if plugin == b"caching_sha2_password":
        exchange.begin("caching_sha2_password", SALT)
        return exchange.answer(b"\1\4")
    exchange.begin("mysql_native_password", SALT)
    return exchange.answer(switch(plugin, b"\4Password: " if plugin == b"dialog" else SALT))


ASKING = (b"caching_sha2_password", b"sha256_password", b"mysql_clear_password", b"dialog")


@pytest.mark.parametrize("plugin", ASKING)
@pytest.mark.parametrize("secure", [True, False])
def test_a_stranger_gets_no_password_and_the_message_has_the_line(plugin: bytes, secure: bool) -> None:
    exchange = login(secure=secure)
    with pytest.raises(UsageError, match=re.escape(f"({plugin.decode()})")) as error:
        asked(exchange, plugin)
    assert "it is a stranger; the password was not sent" in str(error.value)
    for line in ("/?tls=verify&ca=/", "/?server_public_key=/", "/?unverified_server=may-read-password"):
        assert f'"mysql://u@db1:3306{line}' in str(error.value.hint)
    assert not exchange.gave_password
    assert exchange.may_be_asked


@pytest.mark.parametrize("plugin", ASKING)
@pytest.mark.parametrize("how", ["known", "exposed"])
def test_over_tls_the_database_gets_it_and_by_option_everybody(plugin: bytes, how: str) -> None:
    exchange = login(secure=True, doubt=KNOWN if how == "known" else UNKNOWN, exposed=how == "exposed")
    assert asked(exchange, plugin) == "secret é\0".encode()
    assert exchange.gave_password


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_no_option_sends_it_as_it_is_over_the_network(plugin: bytes) -> None:
    with pytest.raises(UsageError, match=r"clear text .*\[login-refused\]"):
        asked(login(exposed=True), plugin)
    assert asked(login(doubt=KNOWN), plugin) == "secret é\0".encode(), "this host's own server"


@pytest.mark.parametrize(("plugin", "ask"), [(b"caching_sha2_password", b"\2"), (b"sha256_password", b"\1")])
def test_the_key_of_the_database_is_asked_for(plugin: bytes, ask: bytes) -> None:
    for exchange in (login(doubt=KNOWN), login(exposed=True)):
        assert asked(exchange, plugin) == ask
        assert decrypted(exchange.answer(b"\1" + PEM)) == "secret é\0".encode()


@pytest.mark.parametrize("plugin", [b"caching_sha2_password", b"sha256_password"])
def test_a_pinned_key_is_used_and_none_is_asked_for(plugin: bytes) -> None:
    exchange = login(pinned=True)
    assert decrypted(asked(exchange, plugin)) == "secret é\0".encode()
    own = rsa.generate_private_key(65537, 2048).public_key()
    with pytest.raises(ValueError, match="no place"):
        exchange.answer(
            b"\1" + own.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )


@pytest.mark.parametrize("plugin", ASKING)
def test_an_account_without_a_password_has_nothing_to_lose(plugin: bytes) -> None:
    exchange = login(password="")
    assert asked(exchange, plugin) == b"\0"
    assert not exchange.gave_password
    assert exchange.risk() is None


@pytest.mark.parametrize("nonce", [b"", b"\0", SALT[:19], SALT + b"x", SALT * 2])
@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password"])
def test_a_scramble_of_another_nonce_could_be_looked_up(plugin: str, nonce: bytes) -> None:
    with pytest.raises(ValueError, match="a nonce of"):
        login().begin(plugin, nonce)
    for other in (plugin.encode(), b"sha256_password", b"client_ed25519"):
        with pytest.raises(ValueError, match="a nonce of"):
            login().answer(switch(other, nonce))


@pytest.mark.parametrize(
    "packet",
    [b"", b"\0", b"\1", b"\1\4", b"\3", b"\xfb/etc/passwd", b"\1" + PEM],
)
def test_what_has_no_place(packet: bytes) -> None:
    exchange = login()
    exchange.begin("mysql_native_password", SALT)
    with pytest.raises(ValueError, match=r"no place|no end"):
        exchange.answer(packet)


def test_a_key_that_is_none() -> None:
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for key in (b"", b"key", pem):
        exchange = login(doubt=KNOWN)
        asked(exchange, b"caching_sha2_password")
        with pytest.raises(ValueError):
            exchange.answer(b"\1" + key)


def test_switches_without_end_are_not_followed() -> None:
    exchange = login()
    steps = 0
    with pytest.raises(ValueError, match="no end"):
        for _ in range(1000):
            exchange.answer(switch(b"mysql_native_password"))
            steps += 1
    assert steps == 16


@pytest.mark.parametrize(
    ("packet", "says"),
    [
        (switch(b"parsec", b""), "plugin is not supported: parsec"),
        (b"\xfe", "plugin is not supported: mysql_old_password"),
        (switch(b"x" * 10_000), "plugin is not supported: " + "x" * 64),
        (switch(b"dialog", b"\4One-time code: "), "asks other questions"),
        (b"\2webauthn\0", "second factor"),
    ],
)
def test_what_a_publisher_cannot_answer(packet: bytes, says: str) -> None:
    exchange = login(doubt=KNOWN)
    with pytest.raises(UsageError, match=says) as error:
        exchange.answer(packet)
    assert error.value.hint
    assert len(str(error.value)) < 500


def test_a_signature_of_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> bytes:
        raise RuntimeError("'pynacl' package is required for ed25519_password auth method")

    monkeypatch.setattr(_auth, "ed25519_password", missing)
    with pytest.raises(UsageError, match="needs a package: 'pynacl'"):
        login().answer(switch(b"client_ed25519", SALT + SALT[:12]))
    monkeypatch.setattr(_auth, "ed25519_password", lambda password, nonce: password + nonce)
    exchange = login()
    assert exchange.answer(switch(b"client_ed25519", SALT + SALT[:12])) == "secret é".encode() + SALT + SALT[:12]
    assert not exchange.may_be_asked


def test_what_is_wrong_with_a_login_that_succeeded() -> None:
    def after(plugin: str, **options: Any) -> tuple[str, str] | None:
        exchange = login(**options)
        exchange.begin(plugin, SALT)
        return exchange.risk()

    found = given(after("caching_sha2_password"))
    assert "from an earlier login (caching_sha2_password); it is a stranger" in found[0]
    for plugin in ("caching_sha2_password", "mysql_native_password"):
        found = given(after(plugin, exposed=True))
        assert "the password goes to whatever answers at u@db1:3306" in found[0]
    assert after("mysql_native_password") is None
    assert after("caching_sha2_password", pinned=True) is None
    assert after("caching_sha2_password", doubt=KNOWN) is None
    assert after("caching_sha2_password", doubt=KNOWN, exposed=True) is None


# --- handshake ---


PASSWORD = "correct horse"
BY_KEY = "caching_sha2_password with our RSA key"
OVER_TLS = "caching_sha2_password asks for all, over our TLS"
CLEAR_OVER_TLS = "a switch to mysql_clear_password over our TLS"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Impostor]:
    """A server that this user runs, as a server of this host may be."""
    with impostor(tmp_path_factory.mktemp("own"), os.geteuid()) as own:
        yield own


@pytest.fixture
def stranger(server: Impostor, monkeypatch: pytest.MonkeyPatch) -> Impostor:
    """The same one, as if it were on another host."""
    monkeypatch.setattr(handshake, "doubt_local", lambda *_: None)
    return server


def learned(server: Impostor, trick: str, **options: object) -> tuple[bytes, WormholeError]:
    """What the server knows after a login, and how that ended: it speaks no further."""
    with pytest.raises(WormholeError) as error:
        connect(server.address(trick, password=PASSWORD, **options))
    return server.learned(), error.value


@pytest.mark.parametrize("trick", [BY_KEY, OVER_TLS, "a switch to dialog"])
def test_a_server_of_this_host_needs_no_option(trick: str, server: Impostor) -> None:
    assert PASSWORD.encode() in learned(server, trick)[0]


@pytest.mark.parametrize(
    ("trick", "why"),
    [
        (BY_KEY, "the connection has no TLS, and no process of this host"),
        (OVER_TLS, "certificate is not checked (tls=prefer)"),
    ],
)
def test_a_stranger_gets_nothing(trick: str, why: str, stranger: Impostor) -> None:
    known, error = learned(stranger, trick)
    assert PASSWORD.encode() not in known
    assert isinstance(error, UsageError)
    assert why in str(error)


@pytest.mark.parametrize("trick", [OVER_TLS, CLEAR_OVER_TLS])
def test_a_verified_certificate_is_enough(trick: str, stranger: Impostor) -> None:
    for ca in (stranger.ca, stranger.certificate):  # its authority's, or the server's own as a pin
        known, _ = learned(stranger, trick, tls="verify-ca", ca=str(ca))
        assert PASSWORD.encode() in known


def test_the_opt_in_does_what_its_name_says(stranger: Impostor) -> None:
    for trick in (BY_KEY, OVER_TLS):
        assert PASSWORD.encode() in learned(stranger, trick, exposed=True)[0]


def test_with_a_pinned_key_another_one_is_never_used(stranger: Impostor, tmp_path: Path) -> None:
    path = tmp_path / "public_key.pem"
    key = rsa.generate_private_key(65537, 2048).public_key()
    path.write_bytes(key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    known, _ = learned(stranger, BY_KEY, tls="off", server_public_key=str(path))
    assert PASSWORD.encode() not in known
    assert len(known) > 256, "encrypted to the pinned key"


@pytest.mark.parametrize("content", [None, b"", b"no key"])
def test_a_key_file_that_cannot_be_used_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "public_key.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=str(path)) as error:
        connect(Address("127.0.0.1", 1, "u", server_public_key=str(path)))
    assert "Caching_sha2_password_rsa_public_key" in str(error.value.hint)


def test_what_a_login_used_is_known_afterwards() -> None:
    with serving() as honest:
        connection = connect(honest.address)
        login = login_of(connection)
        assert (login.plugin, login.gave_password, login.may_be_asked) == ("mysql_native_password", False, False)
        connection.close()


def test_a_tls_that_breaks_is_no_reason_to_go_without(server: Impostor) -> None:
    # The port of a trick without TLS, asked as one that must have it.
    _, error = learned(server, BY_KEY, tls="require")
    assert isinstance(error, UsageError)
    assert "offers none" in str(error)
    assert not isinstance(error, SourceUnavailable)


@pytest.mark.parametrize("tls", ["prefer", "require"])
def test_the_authorities_of_the_host_are_not_read_where_no_certificate_is_checked(
    tls: TlsMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes longer than all the rest of a connection."""
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: pytest.fail("they are read"))
    context = handshake._context(Address("db1", 3306, "reader", tls=tls))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
