"""The driver's connection with the product's login: TLS, verification of the server, and authentication plugins."""

from __future__ import annotations

import ssl
import struct
from pathlib import Path
from typing import Any, Final

import pymysql
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from pymysql.charset import charset_by_name
from pymysql.constants import CLIENT, CR

from datastores.mysql.server.address import Address
from datastores.mysql.server.bounded_connection import BoundedConnection
from datastores.mysql.server.login import Login, load_rsa_key
from datastores.mysql.server.peer_account import doubt_local
from wormhole.model.errors import UsageError

__all__ = ["ServerConnection"]

_MOST_PACKET: Final = (1 << 24) - 1  # the largest packet, as announced to the server
_LONGEST_KEY: Final = 64 << 10


class ServerConnection(BoundedConnection):
    """A connection that ``connect`` opens. ``login``: the finished login. ``options``: for the driver.

    Raises :class:`~wormhole.model.errors.UsageError` for unusable TLS files or an unusable key.
    """

    def __init__(self, address: Address, *, timeout_s: float, **options: Any) -> None:
        self._address = address
        self._server_key = _key_file(address)
        self.login = Login(address, secure=False, doubt=lambda: "nothing was sent yet")
        super().__init__(
            timeout_s=timeout_s,
            host=address.host,
            port=address.port,
            user=address.user,
            ssl_disabled=True,  # turns off the driver's TLS; ours begins below
            **options,
        )
        self._tls = _context(address)

    def _request_authentication(self) -> None:
        driver = self._driver
        capabilities: int = driver.server_capabilities
        flags = driver.client_flag & ~CLIENT.MULTI_RESULTS & ~CLIENT.LOCAL_FILES | CLIENT.CONNECT_ATTRS
        charset: Any = charset_by_name(driver.charset)
        head = struct.pack("<iIB23s", flags, _MOST_PACKET, charset.id, b"")
        tls = self._tls_for(capabilities)
        encrypted = tls is not None
        if tls is not None:
            head = struct.pack("<i", flags | CLIENT.SSL) + head[4:]
            driver.write_packet(head)
            driver._sock = tls.wrap_socket(driver._sock, server_hostname=self._address.host)
            driver._rfile = driver._sock.makefile("rb")  # discards bytes received before TLS, which are not verified
        self.login = Login(
            self._address,
            secure=encrypted or self._address.socket is not None,
            doubt=lambda: self._doubt(encrypted),
            server_key=self._server_key,
        )
        plugin, answer = self.login.begin(driver._auth_plugin_name, driver.salt)
        driver.write_packet(head + self._account(capabilities, plugin, answer))
        while True:
            reply = self.login.answer(driver._read_packet().get_all_data())
            if self.login.over:
                return
            if reply is not None:
                driver.write_packet(reply)

    def _tls_for(self, capabilities: int) -> ssl.SSLContext | None:
        """The TLS context for a server with these capabilities; ``None``: no TLS."""
        if self._tls is None or capabilities & CLIENT.SSL:
            return self._tls
        if self._address.tls == "prefer":
            return None
        raise pymysql.OperationalError(CR.CR_SSL_CONNECTION_ERROR, "the server offers no TLS")

    def _account(self, capabilities: int, plugin: str, answer: bytes) -> bytes:
        """The first packet after its fixed part: the account, the answer, the plugin's name and the client's name."""
        user = self._address.user.encode()
        data = user + b"\0" + bytes([len(answer)]) + answer
        if capabilities & CLIENT.PLUGIN_AUTH:
            data += plugin.encode() + b"\0"
        if capabilities & CLIENT.CONNECT_ATTRS:
            texts = [text.encode() for pair in self._driver._connect_attrs.items() for text in pair]
            attributes = b"".join(bytes([len(text)]) + text for text in texts)
            data += bytes([len(attributes)]) + attributes
        return data

    def _doubt(self, encrypted: bool) -> str:
        """As :class:`~datastores.mysql.server.login.Login` asks."""
        tls = self._address.tls
        if encrypted and tls in ("verify-ca", "verify"):
            return ""
        local = doubt_local(self._driver._sock, self._address.socket)
        if local is not None:
            return local
        if encrypted:
            return f"its certificate is not checked (tls={tls})"
        return "the connection has no TLS, and no process of this host answers it"


def _context(address: Address) -> ssl.SSLContext | None:
    # A Unix socket needs no TLS and has no host name to check. MySQL's clients do the same.
    if address.tls == "off" or (address.tls == "prefer" and address.socket):
        return None
    checked = address.tls not in ("prefer", "require")
    try:
        if checked or address.ca:
            context = ssl.create_default_context(cafile=address.ca)
        else:  # a default context reads every authority of the host, which takes longer than the login
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if address.cert and address.key:
            context.load_cert_chain(address.cert, address.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (address.ca, address.cert, address.key)))
        raise UsageError(
            f"{address}: the TLS files cannot be used ({files}): {error.strerror or error}",
            hint="they are PEM files that this user can read",
            code="certificate-refused",
        ) from None
    # Certificates that servers generate do not pass Python 3.13's default strict checks.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # A `ca` that is the server's own certificate pins it, with any signature.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = address.tls == "verify"
    if not checked:
        context.verify_mode = ssl.CERT_NONE
    return context


def _key_file(address: Address) -> RSAPublicKey | None:
    if address.server_public_key is None:
        return None
    try:
        with Path(address.server_public_key).open("rb") as file:
            return load_rsa_key(file.read(_LONGEST_KEY))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{address}: the server's public key {address.server_public_key} cannot be used: {error}",
            hint="copy public_key.pem from the server's data folder, or the value of SHOW STATUS LIKE "
            "'Caching_sha2_password_rsa_public_key'",
            code="certificate-refused",
        ) from None
