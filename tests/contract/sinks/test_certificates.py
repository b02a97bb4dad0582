"""The rule for a store whose certificate is not trusted, over the kinds whose stores have one."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sinks.commands.examining import examined
from sinks.kinds import kind_of
from sinks.settings import ConfiguredSink
from tests.support.certificates import Authority
from tests.support.webhook_receiver import SECRET
from wormholectl.exit_codes import UNREACHABLE

pytestmark = pytest.mark.allow_blocking


class Kind(NamedTuple):
    """``url``: with ``{}`` for the port. ``settings``: with ``CA`` for the file of authorities. ``first``: what the
    server sends before the handshake; ``asked``: the bytes that it has received by then.
    """

    url: str
    settings: dict[str, Any]
    asked: int = 0
    first: bytes = b""


CA = object()
GREETING = b'INFO {"server_id":"x","headers":true,"max_payload":1048576,"tls_required":true}\r\n'
KINDS = {
    "kafka": Kind("kafka://127.0.0.1:{}", {"tls": {"ca": CA}, "timeout": 5}),
    "nats": Kind("tls://127.0.0.1:{}", {"ca_file": CA}, first=GREETING),
    "webhook": Kind("https://127.0.0.1:{}/", {"ca_file": CA, "secret_file": "receiver.secret"}),
    "redis": Kind("rediss://127.0.0.1:{}", {"tls_ca": CA}),
    "postgres": Kind("postgres://me@127.0.0.1:{}/shop?sslmode=verify-full&sslrootcert={ca}", {}, 8, b"S"),
}


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@contextlib.contextmanager
def listening(kind: Kind, context: ssl.SSLContext) -> Iterator[int]:
    """A server that presents its certificate. Returns its port."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # the client ends the handshake; the test the listener
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(kind.asked) if kind.asked else None
                    connection.sendall(kind.first)
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def codes(kind: Kind, port: int, folder: Path, ca: Path) -> list[tuple[str, int]]:
    """The codes of what an examination finds, each with the exit code of a check."""
    (folder / "receiver.secret").write_text(f"{SECRET}\n")

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(one) for name, one in value.items()}
        return ca if value is CA else value

    scheme, _, rest = kind.url.partition(":")
    given = {**filled(kind.settings), "url": f"{scheme}:{rest.format(port, ca=ca)}"}
    found = kind_of(scheme)
    settings = found.settings.model_validate(given, context={"folder": folder})
    (one,) = examined([ConfiguredSink("sink", found, settings)])
    return [(finding.known_code, one.code) for finding in one.report.findings]


def test_a_store_that_is_not_trusted_is_waited_for(kind: Kind, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "other-ca")
    certificate = theirs.issue("store")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    with listening(kind, context) as port:
        assert codes(kind, port, tmp_path, ours.ca) == [("certificate-refused", UNREACHABLE)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.settings])
def test_a_file_that_cannot_be_used_is_waited_for(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    assert codes(kind, 1, tmp_path, tmp_path / "empty.pem") == [("certificate-refused", UNREACHABLE)]
