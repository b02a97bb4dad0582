"""Makes TLS credentials and checks of the files of ``[tls]``. A running process reads changed files
again.

The files are read at most once in :data:`LOOK_S` seconds, when a connection begins or a metric is needed. They are
compared by content, so a change that keeps size and time is noticed, and ``touch`` is no change. If the new files
cannot be used together (a half-written file, a key of another certificate), the former ones stay in use, with one
warning and a count. The next reading tries again.

gRPC verifies chain, dates and name. In Python it has no setting for revocation lists, so the lists are applied here. A
server applies them when a stream or request begins (:meth:`Trust.refuses_client`). A client applies them on a
connection of its own before gRPC's, which then accepts only the very certificate that was checked
(:mod:`wormhole.host.peer_check`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wormhole.host.certificates import Certificate, Pems, Trusted
from wormhole.metrics import Metric, Sample
from wormhole.model.errors import ConfigError

if TYPE_CHECKING:
    import grpc

    from wormhole.config import TlsAuthority, TlsFiles

__all__ = ["LOOK_S", "PeerRefusedError", "Reloads", "Trust"]

_log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
_LARGEST: Final = 1 << 20
_LARGEST_LIST: Final = 16 << 20  # fits about 400,000 revoked certificates
_NEXT: Final = "each names a PEM file that this process can read"


@dataclass(slots=True)
class Reloads:
    """How often changed files were accepted (``loaded``) and rejected (``refused``) since the process started."""

    loaded: int = 0
    refused: int = 0


class Trust:
    """The TLS files of this process, as the module describes. May be used from any thread.

    ``look_s``: minimum time between two readings, in seconds. ``now``: the time of day. Raises
    :class:`~wormhole.model.errors.ConfigError`, which names every file that cannot be used.
    """

    def __init__(
        self,
        files: TlsFiles | TlsAuthority,
        *,
        look_s: float = LOOK_S,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files = files
        self.reloads = Reloads()
        self.look_s = look_s
        self._now = now
        self._clock = clock
        self._lock = threading.Lock()
        self._aside: object = None  # the rejected files, reported once
        self._looked_at = self._clock()
        self._contexts: dict[tuple[int, tuple[str, ...]], tuple[Trusted, ssl.SSLContext]] = {}
        try:
            self._held = Trusted(_read(files))
        except ValueError as error:
            raise ConfigError(str(error), hint=_NEXT, code="certificate-refused") from error

    @property
    def held(self) -> Trusted:
        """The files in use, without reading them again."""
        return self._held

    def current(self) -> Trusted:
        """The files in use, read again if the last reading was :data:`LOOK_S` ago. Reads files."""
        with self._lock:
            if self._is_due():
                self._look()
                self._looked_at = self._clock()
            return self._held

    def faults(self) -> list[str]:
        """The faults of the files in use: :meth:`wormhole.host.certificates.Trusted.faults`."""
        return self._held.faults(self._now())

    def samples(self, ends: Metric, reloads: Metric, *labels: str) -> list[Sample]:
        """The metrics of the files: when each has to be replaced, and how often that was done. Reads files."""
        found = [Sample(ends, at.timestamp(), (*labels, file)) for file, at in self.current().ends().items()]
        found.append(Sample(reloads, self.reloads.loaded, (*labels, "loaded")))
        return [*found, Sample(reloads, self.reloads.refused, (*labels, "refused"))]

    def warn(self) -> None:
        """Log the faults of this process's certificate, once, when the process starts. The process continues, because
        the files may be replaced.
        """
        for fault in self.faults():
            _log.warning("%s: peers are refused, or refuse us. Next: replace the file; no restart is needed", fault)

    # -- gRPC

    def server_credentials(self, *, demand: bool = True) -> grpc.ServerCredentials:
        """Credentials of a server that demands a certificate of the authority from every client, or asks for none:
        gRPC in Python cannot ask for one that may be missing.

        Each handshake uses the files of its time.
        """
        import grpc  # here, because a monitor needs none

        given = self._held

        def configuration(trusted: Trusted) -> grpc.ServerCertificateConfiguration:
            pems = trusted.pems
            return grpc.ssl_server_certificate_configuration([(pems.key, pems.cert)], root_certificates=pems.ca)

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            found = self.current()
            if found is given:
                return None
            given = found
            return configuration(found)

        fetch: Any = changed  # may return None, although the stubs forbid it
        return grpc.dynamic_ssl_server_credentials(configuration(given), fetch, require_client_authentication=demand)

    def channel_credentials(self, peer: Certificate | None = None) -> grpc.ChannelCredentials:
        """Credentials for dialling once, with this process's certificate.

        ``peer``: the only certificate that is accepted; else any of the authority.
        """
        import grpc

        pems = self._held.pems
        return grpc.ssl_channel_credentials(
            root_certificates=pems.ca if peer is None else peer.pem,
            private_key=pems.key or None,
            certificate_chain=pems.cert or None,
        )

    def refuses_client(self, authenticated: Mapping[str, Any]) -> str:
        """The reason if a client that gRPC accepted is refused; empty: it is not.

        ``authenticated``: the ``auth_context()`` of its call.
        """
        return self.refuses_shown(next(iter(authenticated.get("x509_pem_cert", ())), None))

    @staticmethod
    def client(authenticated: Mapping[str, Any]) -> Certificate | None:
        """The certificate of a client that neither gRPC nor :meth:`refuses_client` refuses."""
        shown = authenticated.get("x509_pem_cert")
        return Certificate.read(shown[0]) if shown else None

    def refuses_shown(self, shown: bytes | None) -> str:
        """:meth:`refuses` for a certificate as PEM or DER; ``None``: the peer showed none."""
        if shown is None:
            return "the client shows no certificate"
        try:
            return self.refuses(Certificate.read(shown))
        except ValueError as error:
            return f"the client's certificate cannot be read: {error}"

    def refuses(self, peer: Certificate) -> str:
        """The reason if the peer's certificate is refused; empty: it is not."""
        return self._held.refusal(peer, self._now())

    async def until_revoked(self, peer: Certificate | None) -> str:
        """Wait until a list contains the certificate of a peer that was accepted. Returns the reason, in words.

        Without lists it never returns.
        """
        while True:
            if self._is_due():  # one of many streams reads the files for all
                await asyncio.to_thread(self.current)
            if peer is not None and (why := self._held.revoked(peer)):
                return why
            await asyncio.sleep(self.look_s)

    # -- HTTP

    def context(self, protocol: int, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """A context of Python's own TLS: the same object until the files change. Reads files.

        ``protocol``: ``ssl.PROTOCOL_TLS_SERVER`` or ``_CLIENT``. ``alpn``: protocols to offer. A client applies
        :meth:`refuses` in the handshake. A server applies it to each request, because connections are kept.
        """
        found = self.current()
        made = self._contexts.get((protocol, alpn))
        if made is not None and made[0] is found:
            return made[1]
        context = _context(protocol, self.files, found.pems)
        if isinstance(context, _ClientContext):
            context.refuses = self.refuses
        if alpn:
            context.set_alpn_protocols(alpn)
        self._contexts[protocol, alpn] = found, context
        return context

    def looking_context(self) -> ssl.SSLContext:
        """A context of a client that accepts every server, to read its certificate and nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _load_pair(context, self.files, self._held.pems)
        return context

    # -- the files

    def _is_due(self) -> bool:
        return self._clock() - self._looked_at >= self.look_s

    def _look(self) -> None:
        try:
            pems: Pems | None = _read(self.files)
            if pems == self._held.pems:
                self._aside = None
                return
            assert pems is not None
            found = Trusted(pems)
            now = self._now()
            if (faults := found.faults(now)) and not self._held.faults(now):
                raise ValueError("; ".join(faults))
        except ValueError as error:
            if self._aside != str(error):
                self._aside = str(error)
                self.reloads.refused += 1
                _log.warning(
                    "[tls]: the changed files are not used, those read before stay in use: %s. Next: replace the file "
                    "that is named; it is read again without a restart",
                    error,
                )
            return
        self._held, self._aside = found, None
        self.reloads.loaded += 1
        what = [f": {own}, until {own.not_after.date()}" for own in found.chain[:1]]
        _log.info("[tls]: the changed files are used from now on%s", "".join(what))


def _read(files: TlsFiles | TlsAuthority) -> Pems:
    """Read the files. Raises ``ValueError``, which names every file that cannot be read."""
    problems: list[str] = []
    cert = _pem(files.cert, "cert", b"CERTIFICATE", problems) if files.cert else b""
    key = _pem(files.key, "key", b"PRIVATE KEY", problems) if files.key else b""
    authority = _pem(files.ca, "ca", b"CERTIFICATE", problems)
    crl = None if files.crl is None else _pem(files.crl, "crl", b"X509 CRL", problems, _LARGEST_LIST)
    if problems:
        raise ValueError("; ".join(problems))
    return Pems(cert, key, authority, crl)


def _pem(path: Path, setting: str, kind: bytes, problems: list[str], most: int = _LARGEST) -> bytes:
    at = f'tls.{setting} = "{path}"'
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        problems.append(f"{at}: cannot be read: {error.strerror}")
        return b""
    if len(data) > most:
        problems.append(f"{at}: is larger than {most >> 20} MiB")
    elif b"-----BEGIN " not in data or kind + b"-----" not in data:
        problems.append(f"{at}: holds no PEM {kind.decode()}")
    return data


class PeerRefusedError(ssl.SSLError):
    """The TLS library accepts the certificate and :meth:`Trust.refuses` does not."""


class _Object(ssl.SSLObject):
    def do_handshake(self) -> None:
        super().do_handshake()
        _check(self)


class _Socket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _check(self)


class _ClientContext(ssl.SSLContext):
    sslobject_class = _Object
    sslsocket_class = _Socket
    refuses: Callable[[Certificate], str]


def _check(connection: ssl.SSLObject | ssl.SSLSocket) -> None:
    """Raise :class:`PeerRefusedError` for a refused certificate. It is an error of TLS, because asyncio ends a
    connection only for these.
    """
    context, shown = connection.context, connection.getpeercert(binary_form=True)
    assert isinstance(context, _ClientContext)
    if shown is not None and (why := context.refuses(Certificate.read(shown))):
        raise PeerRefusedError(ssl.SSLErrorNumber.SSL_ERROR_SSL, why)


def _context(protocol: int, files: TlsFiles | TlsAuthority, pems: Pems) -> ssl.SSLContext:
    """A context in which both sides show a certificate of the authority."""
    context = (_ClientContext if protocol == ssl.PROTOCOL_TLS_CLIENT else ssl.SSLContext)(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    _load_pair(context, files, pems)
    context.load_verify_locations(cadata=pems.ca.decode("ascii", errors="ignore"))
    return context


def _load_pair(context: ssl.SSLContext, files: TlsFiles | TlsAuthority, pems: Pems) -> None:
    """Load the content that was read, and not the file's present content, which may be half-written. Python's TLS reads
    it from files only. A process without a certificate has nothing to load.
    """
    if files.cert is None:
        return
    if not hasattr(os, "memfd_create"):
        context.load_cert_chain(files.cert, files.key)
        return
    descriptor = os.memfd_create("wormhole-tls")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pems.cert + b"\n" + pems.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
