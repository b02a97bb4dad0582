"""A certificate authority of the test's own, and certificates by name."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from wormhole.config import TlsFiles

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates into ``folder``; two authorities do not trust each other's."""

    def __init__(self, folder: Path, name: str = "test-ca") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, hosts: bool = True, days: tuple[int, int] = (-1, 1), file: str = "", crl: Path | None = None
    ) -> TlsFiles:
        """A certificate for ``name`` (a subscriber's id, or any process's), with ``hosts`` also valid for localhost and
        127.0.0.1.

        ``days``: valid from and until, from now. ``file``: its files' name, where that is not ``name``; what is there
        is replaced.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if hosts:
            names += [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(subject, key.public_key(), days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        cert_file, key_file = self._folder / f"{file or name}.crt", self._folder / f"{file or name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return TlsFiles(cert=cert_file, key=key_file, ca=self.ca, crl=crl)

    def revoke(
        self,
        *certificates: Path,
        hours: tuple[int, int] = (-1, 1),
        extension: x509.ExtensionType | None = None,
        file: str = "revoked.crl",
    ) -> Path:
        """A list of these certificates.

        ``hours``: issued and to be replaced, from now. ``extension``: a critical one."""
        now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now + hours[0] * hour)
            .next_update(now + hours[1] * hour)
        )
        for one in certificates:
            serial = x509.load_pem_x509_certificate(one.read_bytes()).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - hour).build()
            )
        if extension is not None:
            builder = builder.add_extension(extension, critical=True)
        path = self._folder / file
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: tuple[int, int] = (-1, 1)
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
        )
