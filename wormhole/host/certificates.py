"""Reads the PEM files of ``[tls]`` and decides which certificates they accept. Pure: the caller passes the bytes and
the time of day.

The TLS library verifies chains and signatures of peers during the handshake. This module adds functions for which the
library in gRPC has no setting: revocation lists (RFC 5280, section 5), and the names and dates that an error needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtensionOID

__all__ = ["Certificate", "Pems", "RevocationList", "Trusted", "day"]

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_UNREADABLE: Final = (
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
    TypeError,
)
_SUPPORTED: Final = frozenset({ExtensionOID.CRL_NUMBER, ExtensionOID.AUTHORITY_KEY_IDENTIFIER})
"""Extensions of a list that may be critical.

Other extensions change the list's meaning: a delta list, a partial list, or a list of several issuers.
"""


@dataclass(frozen=True, slots=True)
class Pems:
    """The content of the files. ``crl`` is ``None`` if no list is configured; ``cert`` and ``key`` are empty where this
    process has no certificate.
    """

    cert: bytes
    key: bytes
    ca: bytes
    crl: bytes | None = None


class Certificate:
    """A certificate's facts. ``str()`` gives the subject and the serial number, as errors name it.

    ``issuer``: the authority that signed it. ``names``: the names that a client may expect in it: alternative DNS names
    and addresses, else the common names.
    """

    __slots__ = (
        "_parsed",
        "common_names",
        "dns_names",
        "issuer",
        "names",
        "not_after",
        "not_before",
        "pem",
        "serial_number",
        "subject",
    )

    def __init__(self, parsed: x509.Certificate) -> None:
        self._parsed = parsed
        self.issuer = parsed.issuer.rfc4514_string()
        self.serial_number = parsed.serial_number
        self.subject = parsed.subject.rfc4514_string() or "(no subject)"
        self.common_names = [str(one.value) for one in parsed.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        self.dns_names, addresses = _alternatives(parsed)
        self.names = (*self.dns_names, *addresses) or tuple(self.common_names)
        self.not_before, self.not_after = parsed.not_valid_before_utc, parsed.not_valid_after_utc
        self.pem = parsed.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def read(cls, data: bytes) -> Certificate:
        """The first certificate of a PEM, or a DER. Raises ``ValueError``."""
        with _reading():
            if b"-----BEGIN " in data:
                return cls(x509.load_pem_x509_certificate(data))
            return cls(x509.load_der_x509_certificate(data))

    def __str__(self) -> str:
        return f"{self.subject} (serial {self.serial_number:X})"

    def is_for(self, name: str) -> bool:
        """Whether a client that expects ``name``, of a host or a process, accepts it; ``*.example`` is for one label
        (RFC 6125, 6.4).
        """
        wanted = name.lower().rstrip(".")
        return any(one in {wanted, f"*.{wanted.partition('.')[2]}"} for one in map(str.lower, self.names))

    def is_issued_by(self, other: Certificate) -> bool:
        """Whether the key of ``other`` signed this certificate."""
        try:
            self._parsed.verify_directly_issued_by(other._parsed)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True

    def outdated(self, now: datetime) -> str:
        """The reason if its dates do not permit its use at ``now``, else empty."""
        if now > self.not_after:
            return f"expired on {day(self.not_after)}"
        return f"is valid only from {day(self.not_before)}" if now < self.not_before else ""


class RevocationList:
    """One list of an authority, whose signature was verified.

    ``next_update``: when the authority issues the next one at the latest.
    """

    __slots__ = ("_parsed", "_serials", "issuer", "next_update", "this_update")

    def __init__(self, parsed: x509.CertificateRevocationList) -> None:
        self._parsed = parsed
        # The library searches the list from its beginning. In a list of 100,000 this takes 11 ms, for each stream and
        # request.
        self._serials = frozenset(one.serial_number for one in parsed)
        self.issuer = parsed.issuer.rfc4514_string()
        self.this_update, self.next_update = parsed.last_update_utc, parsed.next_update_utc

    @classmethod
    def read(cls, pem: bytes, authorities: Iterable[Certificate]) -> RevocationList:
        """Read a list. Raises ``ValueError`` for other content, for a list that none of the ``authorities`` signed, and
        for a kind that is not supported.
        """
        with _reading():
            parsed = x509.load_pem_x509_crl(pem)
            issuer = parsed.issuer.rfc4514_string()
            for extension in parsed.extensions:
                if extension.critical and extension.oid not in _SUPPORTED:
                    raise ValueError(
                        f"the list of {issuer} has the critical extension {extension.oid._name}: only whole lists of "
                        "one issuer are supported"
                    )
            if not any(_signs(authority, parsed) for authority in authorities):
                raise ValueError(f"the list of {issuer} is not signed by an authority of tls.ca")
            return cls(parsed)

    def __len__(self) -> int:
        return len(self._serials)

    def is_stale(self, now: datetime) -> bool:
        """Whether the next list is overdue."""
        return self.next_update is not None and now > self.next_update

    def revoked_at(self, certificate: Certificate) -> datetime | None:
        """When the certificate was revoked; ``None``: it is not in this list."""
        if certificate.issuer != self.issuer or certificate.serial_number not in self._serials:
            return None
        found = self._parsed.get_revoked_certificate_by_serial_number(certificate.serial_number)
        return None if found is None else found.revocation_date_utc


class Trusted:
    """The result of one reading of the files.

    ``chain``: own certificate first; empty: this process has none. ``lists`` is ``None`` if no list is configured.
    """

    __slots__ = ("authorities", "chain", "lists", "pems")

    def __init__(self, pems: Pems) -> None:
        """Raises ``ValueError``, which names the settings, for files that cannot be used together."""
        self.pems = pems
        self.chain = _certificates(pems.cert, "tls.cert") if pems.cert else ()
        self.authorities = _certificates(pems.ca, "tls.ca")
        if pems.cert:
            _check_pair(self.own, pems.key)
        self.lists = None if pems.crl is None else _lists(pems.crl, (*self.authorities, *self.chain[1:]))

    @property
    def own(self) -> Certificate:
        """This process's certificate."""
        return self.chain[0]

    def faults(self, now: datetime) -> list[str]:
        """Reasons for which peers may refuse this process's certificate, and for which it refuses all of theirs. Each
        is the end of a line.
        """
        found = [f"tls.cert, {one}, {why}" for one in self.chain[:1] if (why := one.outdated(now))]
        found += [f"tls.ca, {one}, {why}" for one in self.authorities if (why := one.outdated(now))]
        if self.chain and not _leads_to(self.chain, self.authorities):
            found.append(f"tls.cert, {self.own}, is issued by {self.own.issuer}, which is not in tls.ca")
        for one in self.lists or ():
            if one.is_stale(now):
                found.append(f"tls.crl: {_stale(one)}")
        found += [revoked for one in self.chain[:1] if (revoked := self.revoked(one))]
        return found

    def refusal(self, peer: Certificate, now: datetime) -> str:
        """The reason if the peer's certificate is refused; empty: it is not.

        Its chain and signature are verified by the handshake.
        """
        if why := peer.outdated(now):
            return f"the certificate {peer} {why}"
        if why := self.revoked(peer):
            return why
        if self.lists is None:
            return ""
        of_issuer = [one for one in self.lists if one.issuer == peer.issuer]
        if not of_issuer:
            return f"whether the certificate {peer} is revoked is unknown: tls.crl has no list of {peer.issuer}"
        if all(one.is_stale(now) for one in of_issuer):
            return (
                f"whether the certificate {peer} is revoked is unknown: tls.crl is out of date: {_stale(of_issuer[-1])}"
            )
        return ""

    def revoked(self, certificate: Certificate) -> str:
        """The reason, with the date, if a list contains the certificate, else empty."""
        for one in self.lists or ():
            at = one.revoked_at(certificate)
            if at is not None:
                return f"the certificate {certificate} was revoked on {day(at)} (tls.crl)"
        return ""

    def ends(self) -> dict[str, datetime]:
        """The latest time at which each file has to be replaced, by its setting: ``cert``, ``ca`` and ``crl``."""
        found = {"cert": min(one.not_after for one in self.chain)} if self.chain else {}
        found["ca"] = min(one.not_after for one in self.authorities)
        nexts = [one.next_update for one in self.lists or () if one.next_update is not None]
        return found | ({"crl": min(nexts)} if nexts else {})


def day(moment: datetime) -> str:
    """A time as messages show it: to the minute, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@contextmanager
def _reading() -> Iterator[None]:
    """Convert errors of the library into ``ValueError``: it has several families of them for content that it cannot
    read.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise ValueError(str(error)) from error


def _alternatives(parsed: x509.Certificate) -> tuple[list[str], list[str]]:
    """The subject's alternative DNS names and addresses."""
    try:
        found = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return [], []
    return found.get_values_for_type(x509.DNSName), [str(one) for one in found.get_values_for_type(x509.IPAddress)]


def _blocks(pem: bytes, kind: bytes) -> Iterator[bytes]:
    return (found[0] for found in _BLOCK.finditer(pem) if found[1] == kind)


def _certificates(pem: bytes, setting: str) -> tuple[Certificate, ...]:
    try:
        found = tuple(map(Certificate.read, _blocks(pem, b"CERTIFICATE")))
    except ValueError as error:
        raise ValueError(f"{setting}: a certificate in it cannot be read: {error}") from error
    if not found:
        raise ValueError(f"{setting}: holds no PEM CERTIFICATE")
    return found


def _check_pair(own: Certificate, key: bytes) -> None:
    if b"PRIVATE KEY-----" not in key:
        raise ValueError("tls.key: holds no PEM PRIVATE KEY")
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(
            "tls.key: is incomplete, or encrypted: a whole PEM PRIVATE KEY without a password is needed"
        ) from error
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    with _reading():
        public = own._parsed.public_key().public_bytes(*form)
    if private.public_key().public_bytes(*form) != public:
        raise ValueError(
            f"tls.key is not the private key of tls.cert, {own}: the two files are of different certificates"
        )


def _lists(pem: bytes, authorities: tuple[Certificate, ...]) -> tuple[RevocationList, ...]:
    try:
        found = tuple(RevocationList.read(block, authorities) for block in _blocks(pem, b"X509 CRL"))
    except ValueError as error:
        raise ValueError(f"tls.crl: {error}") from error
    if not found:
        raise ValueError("tls.crl: holds no PEM X509 CRL")
    return found


def _signs(authority: Certificate, parsed: x509.CertificateRevocationList) -> bool:
    certificate = authority._parsed
    if certificate.subject != parsed.issuer:
        return False
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        if not usage.crl_sign:
            return False
    except x509.ExtensionNotFound:
        pass
    try:
        return parsed.is_signature_valid(certificate.public_key())  # type: ignore[arg-type]  # a key that signs nothing raises
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def _leads_to(chain: tuple[Certificate, ...], authorities: tuple[Certificate, ...]) -> bool:
    """Whether the chain ends at one of the authorities."""
    last, rest = chain[0], list(chain[1:])
    while not any(last.pem == one.pem or last.is_issued_by(one) for one in authorities):
        above = next((one for one in rest if last.is_issued_by(one)), None)
        if above is None:
            return False
        rest.remove(above)
        last = above
    return True


def _stale(one: RevocationList) -> str:
    assert one.next_update is not None
    return f"the list of {one.issuer} was to be replaced by {day(one.next_update)}"
