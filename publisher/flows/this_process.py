"""The identity and addresses of this process, for people and other processes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ThisProcess"]


@dataclass(slots=True)
class ThisProcess:
    """``identity``: as flow records name it; ``started``: seconds since 1970. The addresses are set once it serves
    there.
    """

    identity: str
    host: str
    started: float
    http_address: str = ""
    admin_address: str = ""
