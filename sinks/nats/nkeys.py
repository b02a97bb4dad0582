"""The credentials of a NATS user without a password: a key that signs the server's nonce, alone or with a JWT.

A file of credentials from the tool ``nsc`` holds both. A key's text is base32 of a prefix, the key and a checksum.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wormhole.model.errors import TargetRefused

__all__ = ["UserKey", "read_user_key"]

_JWT: Final = re.compile(rb"BEGIN NATS USER JWT-+\s+([\w.=-]+)")
_SEED: Final = re.compile(rb"\bSU[A-Z2-7]{56}\b")
_USER: Final = bytes([20 << 3])
"""The prefix of a user's public key."""
_LONGEST: Final = 1 << 20


class UserKey:
    """A key with its ``jwt``; ``None``: the server knows the key itself. ``public``: the public key as text."""

    def __init__(self, seed: bytes, jwt: bytes | None = None) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.jwt = jwt
        public = _USER + self._key.public_key().public_bytes_raw()
        self.public = base64.b32encode(public + _checksum(public)).rstrip(b"=").decode()

    def signature(self, nonce: str) -> bytes:
        """The signature of the server's nonce, in the form that the server expects."""
        return base64.b64encode(self._key.sign(nonce.encode()))


def read_user_key(path: Path) -> UserKey:
    """The key in a file, and the JWT if there is one. Blocks.

    Raises :class:`~wormhole.model.errors.TargetRefused`, which shows nothing of the file's content.
    """
    why = "it holds no seed of a user (SU...)"
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST)
    except OSError as error:
        text, why = b"", error.strerror or "it cannot be read"
    jwt = _JWT.search(text)
    if (found := _SEED.search(text)) is not None:
        decoded = base64.b32decode(found[0] + b"======")
        if decoded[34:] == _checksum(decoded[:34]):
            return UserKey(decoded[2:34], jwt and jwt[1])
        why = "a letter of its seed is wrong"
    raise TargetRefused(
        f"there are no credentials in {path}: {why}",
        hint="write the seed of the user's key into the file, or the file of credentials that nsc makes",
        code="login-refused",
    )


def _checksum(data: bytes) -> bytes:
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
