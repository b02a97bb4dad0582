"""The identity and addresses of this process, for people and other processes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ThisProcess"]


@dataclass(slots=True)
class ThisProcess:
    """``identity``: the name of this process in flow records; ``started``: seconds since 1970. The addresses are set
    once the process listens there.
    """

    identity: str
    host: str
    started: float
    http_address: str = ""
    admin_address: str = ""
