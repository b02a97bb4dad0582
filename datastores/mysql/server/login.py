"""The client's side of a login: its answers to the server, and the conditions for sending the password itself.

Pure: packets in, packets out.

Plugins and packets: MySQL's client/server protocol, "Connection Phase" and "Authentication Methods"; MariaDB's
knowledge base, "Authentication Plugins". A plugin either requests a proof that the client knows the password (a
scramble of the server's nonce), or the password itself. The password is sent unencrypted if the server regards the
connection as safe (TLS, a Unix socket), and otherwise encrypted with an RSA key. It is sent only to a verified peer. A
scramble is sent to every peer, as the servers' own clients do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pymysql import _auth

from datastores.mysql.server.address import EXPOSED, Address
from wormhole.model.errors import UsageError

__all__ = ["Login", "load_rsa_key", "next_step"]

_NATIVE: Final = "mysql_native_password"
_CACHING: Final = "caching_sha2_password"
_SHA256: Final = "sha256_password"
_ED25519: Final = "client_ed25519"
_CLEAR: Final = "mysql_clear_password"
_DIALOG: Final = "dialog"
_QUESTION: Final = b"Password: "

_NONCE: Final = 20
_ED25519_NONCE: Final = 32
_MOST_STEPS: Final = 16  # the most steps; an account of MariaDB may have several plugins, which are tried in turn

_OK, _MORE, _FACTOR, _SWITCH = 0x00, 0x01, 0x02, 0xFE
_LEAST_OK: Final = 7
_ASK_KEY_SHA256, _ASK_KEY_CACHING = b"\1", b"\2"
_KNOWN, _WHOLE = b"\3", b"\4"


class Login:
    """One login to ``address``: :meth:`begin`, then :meth:`answer` until ``over``.

    ``secure``: whether the server regards the connection as safe. ``doubt``: returns why the peer is not verified to be
    the database; empty: it is. It is called only if needed. ``server_key``: the server's RSA key, if it was pinned.
    ``plugin``: the plugin that was used. ``gave_password``: whether the password itself was sent.
    """

    def __init__(
        self, address: Address, *, secure: bool, doubt: Callable[[], str], server_key: RSAPublicKey | None = None
    ) -> None:
        self._address = address
        self._password = address.password.encode()
        self._secure = secure
        self._doubt = doubt
        self._key = server_key
        self._nonce = b""
        self._steps = 0
        self._awaits_key = False
        self.plugin = ""
        self.gave_password = False
        self.over = False

    @property
    def may_be_asked(self) -> bool:
        """Whether the account's plugin requests the password itself, now or once the server's cache is empty."""
        return self.plugin in (_CACHING, _SHA256, _CLEAR, _DIALOG)

    def risk(self) -> tuple[str, str] | None:
        """The risk of a successful login, and its consequence; ``None``: there is none. Calls ``doubt``."""
        if not self._password or not (doubt := self._doubt()):
            return None
        if self._address.exposed:
            return (
                f"unverified_server={EXPOSED}: the password goes to whatever answers at {self._address}",
                "a process that answers in place of the database gets the password, and with it the whole log",
            )
        if not self.may_be_asked or self._key is not None:
            return None
        return (
            f"the server knew the password from an earlier login ({self.plugin}); {doubt}",
            (
                "after its next restart it asks for the password itself, which the publisher does not send: it "
                "cannot connect then"
            ),
        )

    def begin(self, plugin: str, salt: bytes) -> tuple[str, bytes]:
        """The plugin to name in the first packet, and its answer. ``plugin``, ``salt``: from the server's greeting.

        Raises as :meth:`answer`."""
        # Any other plugin requires the server to request a switch, so that one place decides about the password.
        self.plugin = plugin if plugin == _CACHING else _NATIVE
        return self.plugin, self._scramble(salt)

    def answer(self, packet: bytes) -> bytes | None:
        """The answer to a packet of the server; ``None``: no answer, read the next packet.

        Raises :class:`~wormhole.model.errors.UsageError` if the password would be sent to an unverified peer, or if the
        plugin is not supported; ``ValueError`` for an unexpected packet.
        """
        self._steps += 1
        if not packet or self._steps > _MOST_STEPS:
            raise ValueError("the login has no end")
        kind = packet[0]
        if kind == _OK and len(packet) >= _LEAST_OK:
            self.over = True
            return None
        if kind == _SWITCH:
            return self._switch(packet[1:])
        if self.plugin == _DIALOG:
            return self._reply(packet)
        if kind == _MORE and self.plugin in (_CACHING, _SHA256):
            return self._more(packet[1:])
        if kind == _FACTOR:
            raise UsageError(
                f"{self._address}: the account has a second factor, which a publisher cannot give",
                hint="give the publisher an account with a password alone",
                code="login-refused",
            )
        raise ValueError("this packet has no place in a login")

    # --- the server's packets ------------------------------------------------------------------------------------

    def _switch(self, data: bytes) -> bytes:
        name, _, rest = data.partition(b"\0")
        self.plugin = name.decode("ascii", "replace") or "mysql_old_password"
        self._awaits_key = False
        if self.plugin in (_NATIVE, _CACHING):
            return self._scramble(rest)
        if self.plugin == _SHA256:
            self._nonce = _nonce_of(rest, _NONCE)
            return self._whole(_ASK_KEY_SHA256)
        if self.plugin == _ED25519:
            return self._signature(_nonce_of(rest, _ED25519_NONCE))
        if self.plugin == _CLEAR:
            return self._as_it_is()
        if self.plugin == _DIALOG:
            return self._reply(rest)
        raise UsageError(
            f"{self._address}: the account's authentication plugin is not supported: {self.plugin[:64]}",
            hint=f"ALTER USER ... IDENTIFIED WITH {_CACHING} (MariaDB: {_NATIVE}) BY ...",
            code="login-refused",
        )

    def _more(self, data: bytes) -> bytes | None:
        if self._awaits_key:
            self._awaits_key = False
            return self._encrypted(load_rsa_key(data))
        if self.plugin == _CACHING and data == _KNOWN:
            return None
        if self.plugin == _CACHING and data == _WHOLE:
            return self._whole(_ASK_KEY_CACHING)
        raise ValueError("this packet has no place in a login")

    def _reply(self, question: bytes) -> bytes:
        if question[1:] != _QUESTION:
            raise UsageError(
                f"{self._address}: the account's login asks other questions than the password ({_DIALOG})",
                hint="give the publisher an account with a password alone",
                code="login-refused",
            )
        return self._as_it_is()

    # --- answers that prove knowledge of the password ------------------------------------------------------------

    def _scramble(self, salt: bytes) -> bytes:
        self._nonce = nonce = _nonce_of(salt, _NONCE)
        made = _auth.scramble_caching_sha2 if self.plugin == _CACHING else _auth.scramble_native_password
        scramble: bytes = made(self._password, nonce)
        return scramble

    def _signature(self, nonce: bytes) -> bytes:
        try:
            signature: bytes = _auth.ed25519_password(self._password, nonce)
        except RuntimeError as error:
            raise UsageError(
                f"{self._address}: the account's authentication needs a package: {error}",
                hint=f"install it, or let the account use {_NATIVE}",
                code="extra-missing",
            ) from None
        return signature

    # --- answers with the password itself ------------------------------------------------------------------------

    def _whole(self, ask_key: bytes) -> bytes:
        """The answer to a plugin that requests the password itself: unencrypted, or encrypted with the RSA key."""
        if self._secure or not self._password:
            return self._as_it_is()
        if self._key is not None:
            return self._encrypted(self._key)
        # A key from an unverified peer protects nothing, so it is not requested.
        self._permit()
        self._awaits_key = True
        return ask_key

    def _as_it_is(self) -> bytes:
        self._permit()
        if self._password and not self._secure and self._doubt():
            raise UsageError(
                f"{self._address}: the server asks for the password in clear text over a connection without TLS "
                f"({self.plugin}); the password was not sent",
                hint=f"let the server offer TLS, or give the account {_CACHING}",
                code="login-refused",
            )
        self.gave_password = bool(self._password)
        return self._password + b"\0"

    def _encrypted(self, key: RSAPublicKey) -> bytes:
        nonce = self._nonce
        mixed = bytes(byte ^ nonce[i % len(nonce)] for i, byte in enumerate(self._password + b"\0"))
        self.gave_password = True
        return key.encrypt(mixed, padding.OAEP(padding.MGF1(SHA1()), SHA1(), None))  # noqa: S303 - as the protocol has it

    def _permit(self) -> None:
        """Raise if the password would be sent to an unverified peer."""
        if self._password and not self._address.exposed and (doubt := self._doubt()):
            raise UsageError(
                f"{self._address}: the server asks for the password itself ({self.plugin}), and nothing shows that it "
                f"is the database: {doubt}; the password was not sent",
                hint=next_step(self._address),
                code="login-refused",
            )


def load_rsa_key(pem: bytes) -> RSAPublicKey:
    """Parse a server's public key. Raises ``ValueError``."""
    key = load_pem_public_key(pem)
    if not isinstance(key, RSAPublicKey):
        raise ValueError("it is no RSA key")
    return key


def _nonce_of(data: bytes, size: int) -> bytes:
    """The server's nonce, which some servers end with a NUL. Its size is checked, because a scramble with a nonce of
    another size could be found in a precomputed table."""
    nonce = data[:-1] if len(data) == size + 1 and data.endswith(b"\0") else data
    if len(nonce) != size:
        raise ValueError(f"a nonce of {len(nonce)} bytes instead of {size}")
    return nonce


def next_step(address: Address) -> str:
    """The next steps that allow sending the password, best first."""
    url = address.url
    return (
        f'write source = "{url}/?tls=verify&ca=/path/of/ca.pem" with the authority of the server\'s certificate '
        "(ca.pem in its data folder; tls=verify-ca where the certificate lacks the host's name); for a server "
        "without TLS "
        f'"{url}/?server_public_key=/path/of/public_key.pem" with the server\'s RSA key; or, '
        f'if any server that can answer there may have the password, "{url}/?unverified_server={EXPOSED}"'
    )
