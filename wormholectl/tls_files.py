"""What the files of ``[tls]`` contain, for a person: ``doctor`` and ``config check`` show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wormhole.config import TlsFiles
from wormhole.model.errors import ConfigError

if TYPE_CHECKING:
    from wormhole.host.certificates import Certificate, Trusted

__all__ = ["TlsReport", "report_on"]


@dataclass(frozen=True, slots=True)
class TlsReport:
    """``facts``: one line for each certificate and list. ``faults``: why peers would be refused, or refuse us; a file that cannot be used
    is one."""

    facts: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def report_on(tls: TlsFiles | None) -> TlsReport | None:
    """Reads the files; ``None`` without TLS."""
    if tls is None:
        return None
    from wormhole.host.trust import Trust  # here, because its library takes 13 MB

    try:
        trust = Trust(tls)
    except ConfigError as error:
        return TlsReport(faults=(error.message,))
    return TlsReport(tuple(_facts(trust.held)), tuple(trust.faults()))


def _facts(trusted: Trusted) -> Iterator[str]:
    for number, one in enumerate(trusted.chain):
        names = f", names {', '.join(one.names)}" if number == 0 else ""
        yield f"tls.cert: {one}{names}, issued by {one.issuer}, {_dates(one)}"
    for one in trusted.authorities:
        yield f"tls.ca: {one}, {_dates(one)}"
    if trusted.lists is None:
        yield "tls.crl: none, so no certificate is revoked"
    for listed in trusted.lists or ():
        ends = (
            "no next one announced"
            if listed.next_update is None
            else f"next one by {listed.next_update:%Y-%m-%d %H:%M} UTC"
        )
        yield f"tls.crl: list of {listed.issuer}, {len(listed)} certificates, of {listed.this_update:%Y-%m-%d %H:%M} UTC, {ends}"


def _dates(one: Certificate) -> str:
    return f"valid {one.not_before:%Y-%m-%d} to {one.not_after:%Y-%m-%d %H:%M} UTC"
