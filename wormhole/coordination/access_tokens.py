"""Tokens with which subscribers that dial prove their application, in place of a certificate. Pure.

A token consists of 256 random bits. Only its SHA-256 is stored: no search can try all values, so a slow hash would
protect nothing, and strangers could make a publisher compute it. At most :data:`MOST_VALID` tokens of an application
are valid at one time, so a new one can replace an old one without a pause.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from wormhole.model.errors import UsageError

__all__ = ["LONGEST_TOKEN", "MOST_VALID", "AccessToken", "find", "hash_of", "new_token", "with_token"]

MOST_VALID: Final = 2
LONGEST_TOKEN: Final = 100
_PREFIX: Final = "wormhole_"  # people, and programs that search for secrets, recognise a token by it
_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The stored form of a token. ``hash``: its SHA-256, in hexadecimal digits. ``created`` and ``expires``: seconds
    since 1970. A token with ``expires`` 0 never expires.
    """

    hash: str
    created: float
    expires: float = 0.0

    @property
    def id(self) -> str:
        """The token's name in lists, which does not reveal the token."""
        return self.hash[:8]

    def is_valid(self, now: float) -> bool:
        """Whether the token is still valid at ``now`` (seconds since 1970)."""
        return not self.expires or now < self.expires


def new_token(created: float, expires: float) -> tuple[str, AccessToken]:
    """Make a token. Returns its text and its stored form."""
    text = _PREFIX + secrets.token_urlsafe(_BYTES)
    return text, AccessToken(hash_of(text), created, expires)


def find(tokens: Collection[AccessToken], text: str) -> AccessToken | None:
    """The stored token of ``text``, also if it has expired. The time that this takes does not depend on ``text``."""
    wanted, found = hash_of(text), None
    for token in tokens:
        if hmac.compare_digest(token.hash.encode(), wanted.encode()):
            found = token
    return found


def with_token(tokens: Collection[AccessToken], added: AccessToken, application: str) -> tuple[AccessToken, ...]:
    """``tokens`` with ``added``, without the tokens that expired before ``added`` was created.

    Raises :class:`~wormhole.model.errors.UsageError` if there would be too many.
    """
    valid = tuple(token for token in tokens if token.is_valid(added.created))
    if len(valid) >= MOST_VALID:
        raise UsageError(
            f"{application} has {len(valid)} valid tokens already: {', '.join(token.id for token in valid)}",
            hint=f"`wormholectl tokens revoke {application} ID` of the one that no subscriber uses any more",
            code="too-many-tokens",
        )
    return (*valid, added)


def hash_of(text: str) -> str:
    """The SHA-256 of the token ``text``, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
