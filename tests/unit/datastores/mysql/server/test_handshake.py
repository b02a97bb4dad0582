from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from datastores.mysql.server import handshake
from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect, login_of
from datastores.mysql.server.url import TlsMode
from tests.support.hostile_mysql import serving
from tests.support.mysql_impostor import Impostor, impostor
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError

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
