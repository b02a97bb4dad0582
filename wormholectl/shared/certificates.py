"""Reads certificates: the name by which subscribers know a publisher, and a report on the files of ``[tls]`` for
``doctor`` and ``config check``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wormhole.admin.admin_service import Answer
from wormhole.config import TlsFiles
from wormhole.model.errors import ConfigError, WormholeError

if TYPE_CHECKING:
    from wormhole.host.certificates import Certificate, Trusted

__all__ = ["TlsReport", "name_in", "named", "report_on"]


def named(answers: Iterable[Answer]) -> dict[str, str]:
    """By address, the name in the certificate of each publisher that answered with TLS. Blocks.

    A publisher whose certificate is expired, revoked or from another authority is omitted, because it does not belong
    to this installation.
    """
    found = {}
    for answer in answers:
        if answer.tls is None or answer.status is None or answer.address.startswith("unix:"):
            continue
        from wormhole.host.peer_check import examine  # here, because its library takes 13 MB
        from wormhole.host.trust import Trust

        try:
            peer = asyncio.run(examine(answer.address, Trust(answer.tls)))
        except WormholeError:
            continue
        if name := name_in(peer.common_names, peer.dns_names):
            found[answer.address] = name
    return found


def name_in(common: Sequence[str], hosts: Sequence[str]) -> str:
    """The process name in a certificate with these names: its common name, or its first DNS name that does not mean
    this host; empty without such a name.
    """
    listed = [name for name in common if name in hosts] or [name for name in hosts if name != "localhost"] or common
    return listed[0] if listed else ""


@dataclass(frozen=True, slots=True)
class TlsReport:
    """``facts``: one line for each certificate and revocation list. ``faults``: why this host would refuse peers, or
    peers would refuse it; also unusable files.
    """

    facts: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def report_on(tls: TlsFiles | None) -> TlsReport | None:
    """The report on the files of ``[tls]``; ``None`` without TLS."""
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
        yield (
            f"tls.crl: list of {listed.issuer}, {len(listed)} certificates, of {listed.this_update:%Y-%m-%d %H:%M} "
            f"UTC, {ends}"
        )


def _dates(one: Certificate) -> str:
    return f"valid {one.not_before:%Y-%m-%d} to {one.not_after:%Y-%m-%d %H:%M} UTC"
