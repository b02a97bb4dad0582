"""The name by which a publisher's certificate is known to subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from wormhole.model.errors import WormholeError
from wormholectl.admin_client import Answer

__all__ = ["name_in", "named"]


def named(answers: Iterable[Answer]) -> dict[str, str]:
    """Address of each publisher that was reached with TLS and answered, to the name in its certificate. Blocks.

    One whose certificate is of another authority, expired or revoked is left out: then it is no publisher of this installation.
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
    """The name of the process that a certificate with these common and DNS names is for: its common name, or its first DNS name
    that is not this host's; empty when it has none."""
    listed = [name for name in common if name in hosts] or [name for name in hosts if name != "localhost"] or common
    return listed[0] if listed else ""
