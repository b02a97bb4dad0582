"""Proofs of a password that do not reveal it: SCRAM-SHA-256 (RFC 5802 and 7677) as in PostgreSQL. Pure.

The peer at an address chooses how a proof is computed. From a proof of one iteration the password is guessed 4,096
times as fast as from a proof with PostgreSQL's default. libpq accepts every choice. So the choice is read first
(:mod:`datastores.postgres.server.login`), and libpq gets only the keys derived with it. A peer that later makes another
choice gets no cheaper proof.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from dataclasses import dataclass
from typing import Final

__all__ = ["FEWEST_ITERATIONS", "MECHANISM", "MOST_ITERATIONS", "Challenge", "Keys", "derive", "first_message"]

MECHANISM: Final = "SCRAM-SHA-256"
FEWEST_ITERATIONS: Final = 4096
"""PostgreSQL's default, and the minimum of RFC 7677."""
MOST_ITERATIONS: Final = 2_000_000
"""The iterations of about half a second of processor time, the most that a peer may cause."""

_SHORTEST_SALT: Final = 8
_PROHIBITED: Final = (
    *(stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4),
    *(stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8),
    *(stringprep.in_table_c9, stringprep.in_table_a1),
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The parameters with which the server stored the password, and with which a proof is computed."""

    salt: bytes
    iterations: int

    @classmethod
    def parse(cls, data: bytes, nonce: str) -> Challenge:
        """Read the server's first message. ``nonce``: the client's nonce. Raises ``ValueError``."""
        try:
            fields = dict(one.split("=", 1) for one in data.decode("ascii").split(","))
            salt, iterations = base64.b64decode(fields["s"], validate=True), fields["i"]
            answered = fields["r"]
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("its SCRAM message has another form") from None
        if not answered.startswith(nonce) or answered == nonce or len(salt) < _SHORTEST_SALT:
            raise ValueError("its SCRAM message answers another one")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 10):
            raise ValueError("its SCRAM message has no number of iterations")
        return cls(salt, int(iterations))

    @property
    def fits(self) -> bool:
        """Whether the iterations are within `FEWEST_ITERATIONS` and `MOST_ITERATIONS`."""
        return FEWEST_ITERATIONS <= self.iterations <= MOST_ITERATIONS


@dataclass(frozen=True, slots=True)
class Keys:
    """The values of libpq's parameters ``scram_client_key`` and ``scram_server_key``."""

    client: str
    server: str


def first_message(nonce: str) -> bytes:
    """The client's first message. The server knows the account from the session's start."""
    return f"n,,n=,r={nonce}".encode()


def derive(password: str, challenge: Challenge) -> Keys:
    """Derive the keys from a password."""
    salted = hashlib.pbkdf2_hmac("sha256", _prepared(password), challenge.salt, challenge.iterations)
    client, server = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    return Keys(base64.b64encode(client).decode(), base64.b64encode(server).decode())


def _prepared(password: str) -> bytes:
    """Apply SASLprep (RFC 4013). Like the server, this leaves a password that it prohibits unchanged."""
    if password.isascii():  # control characters stay unchanged
        return password.encode()
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in password if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not prepared or any(prohibited(char) for char in prepared for prohibited in _PROHIBITED):
        return password.encode()
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        return password.encode()
    return prepared.encode()
