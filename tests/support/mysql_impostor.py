"""Passes for a MySQL or MariaDB server, as another user of this host, and writes down what it learns of the password.

Each trick has a port of its own. The impostor is a forked process with the rights of ``nobody``: the kernel lists its
sockets as that user's.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from datastores.mysql.server.address import Address
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S
from wormhole.config import TlsFiles

NOBODY: Final = 65534
SALT: Final = b"12345678123456789012"
_OK: Final = b"\0\0\0\2\0\0\0"
_SSL, _PLUGIN_AUTH, _SECURE, _PROTOCOL_41 = 1 << 11, 1 << 19, 1 << 15, 1 << 9


class _Talk:
    """One connection, as the server has it. ``learned``: all that the client sent, decrypted where it can be."""

    def __init__(self, client: socket.socket, key: rsa.RSAPrivateKey, context: ssl.SSLContext) -> None:
        self.client = client
        self.learned = b""
        self._key = key
        self._context = context
        self._sequence = 0

    def greet(self, plugin: str, *, tls: bool = False) -> bytes:
        """The client's first packet; what comes after it goes through TLS where ``tls``."""
        capabilities = _PLUGIN_AUTH | _SECURE | _PROTOCOL_41 | (_SSL if tls else 0)
        head = b"\x0a8.4.3\0" + struct.pack("<I", 7) + SALT[:8] + b"\0"
        rest = struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
        self.send(head + rest + bytes(10) + SALT[8:] + b"\0" + plugin.encode() + b"\0")
        if not tls:
            return self.receive()
        self.receive()
        self.client = self._context.wrap_socket(self.client, server_side=True)
        return self.receive()

    def switch(self, plugin: bytes, data: bytes = SALT + b"\0") -> bytes:
        return self.ask(b"\xfe" + plugin + b"\0" + data)

    def ask(self, payload: bytes) -> bytes:
        self.send(payload)
        return self.receive()

    def ask_encrypted(self) -> None:
        """Give our key, and decrypt what comes back."""
        pem = self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        answer = self.ask(b"\1" + pem)
        mixed = self._key.decrypt(answer, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))
        self.learned += bytes(byte ^ SALT[i % len(SALT)] for i, byte in enumerate(mixed))

    def send(self, payload: bytes) -> None:
        self.client.sendall(struct.pack("<I", len(payload))[:3] + bytes([self._sequence]) + payload)
        self._sequence += 1

    def receive(self) -> bytes:
        head = self._exactly(4)
        self._sequence = head[3] + 1
        data = self._exactly(int.from_bytes(head[:3], "little"))
        self.learned += data
        return data

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.client.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)


def _caching_rsa(talk: _Talk) -> None:
    talk.greet("caching_sha2_password")
    assert talk.ask(b"\1\4") == b"\2"
    talk.ask_encrypted()


def _sha256_rsa(talk: _Talk) -> None:
    talk.greet("sha256_password")
    talk.switch(b"sha256_password")
    talk.ask_encrypted()


def _caching_whole(talk: _Talk) -> None:
    talk.greet("caching_sha2_password", tls=True)
    talk.ask(b"\1\4")


def _sha256_first(talk: _Talk) -> None:
    talk.greet("sha256_password", tls=True)
    talk.switch(b"sha256_password")


def _switched(plugin: bytes, data: bytes = SALT + b"\0", *, tls: bool = False) -> Callable[[_Talk], None]:
    def play(talk: _Talk) -> None:
        talk.greet("mysql_native_password", tls=tls)
        talk.switch(plugin, data)

    return play


TRICKS: Final[dict[str, Callable[[_Talk], None]]] = {
    "caching_sha2_password with our RSA key": _caching_rsa,
    "sha256_password with our RSA key": _sha256_rsa,
    "caching_sha2_password asks for all, over our TLS": _caching_whole,
    "sha256_password over our TLS": _sha256_first,
    "a switch to sha256_password over our TLS": _switched(b"sha256_password", tls=True),
    "a switch to mysql_clear_password": _switched(b"mysql_clear_password"),
    "a switch to mysql_clear_password over our TLS": _switched(b"mysql_clear_password", tls=True),
    "a switch to dialog": _switched(b"dialog", b"\4Password: "),
    "a switch to dialog over our TLS": _switched(b"dialog", b"\4Password: ", tls=True),
    "mysql_native_password without a nonce": _switched(b"mysql_native_password", b""),
    "caching_sha2_password without a nonce": _switched(b"caching_sha2_password", b""),
}
"""What makes the password, or what can be looked up in a table, come out of a client; by a name for people."""


class Impostor:
    """``address`` of each trick, and what was learned by it. ``ca``, ``certificate``: PEM files."""

    def __init__(self, ports: dict[str, int], heard: int, files: TlsFiles) -> None:
        self.ca, self.certificate = files.ca, files.cert
        self._ports = ports
        self._lines = os.fdopen(heard, "rb")

    def address(self, trick: str, **options: object) -> Address:
        return Address("127.0.0.1", self._ports[trick], "wormhole", **options)  # type: ignore[arg-type]

    def learned(self) -> bytes:
        """By the oldest talk that was not asked for yet."""
        return bytes.fromhex(json.loads(self._lines.readline()))

    def close(self) -> None:
        self._lines.close()


@contextmanager
def impostor(folder: Path, user: int = NOBODY) -> Iterator[Impostor]:
    """An impostor for the time of a ``with``; as another user only where we are root."""
    files = Authority(folder).issue("db1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    key = rsa.generate_private_key(65537, 2048)
    heard, says = os.pipe()
    ready, reports = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if user != os.geteuid():
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            _serve(key, context, says, reports)
        finally:
            os._exit(1)
    os.close(says)
    os.close(reports)
    try:
        with os.fdopen(ready, "rb") as ports:
            found = Impostor(json.loads(ports.readline()), heard, files)
        try:
            yield found
        finally:
            found.close()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def _serve(key: rsa.RSAPrivateKey, context: ssl.SSLContext, says: int, reports: int) -> None:
    listening = {trick: socket.create_server(("127.0.0.1", 0)) for trick in TRICKS}
    os.write(reports, json.dumps({name: made.getsockname()[1] for name, made in listening.items()}).encode() + b"\n")
    with selectors.DefaultSelector() as waiting:
        for trick, made in listening.items():
            waiting.register(made, selectors.EVENT_READ, trick)
        while True:
            for event, _ in waiting.select():
                client, _ = event.fileobj.accept()  # type: ignore[union-attr]
                client.settimeout(PATIENCE_S)
                talk = _Talk(client, key, context)
                with suppress(OSError, ValueError, AssertionError):
                    TRICKS[event.data](talk)
                    talk.send(_OK)
                talk.client.close()
                os.write(says, json.dumps(talk.learned.hex()).encode() + b"\n")
