"""Reads the file with the secrets of a receiver, and signs requests."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sinks.webhook.message import Message

__all__ = ["read_secrets", "signatures"]

_PREFIX: Final = "whsec_"
_LONGEST_FILE: Final = 4096
_LEAST, _MOST = 24, 64  # bytes of a secret, by Standard Webhooks
_FORM: Final = f"one or two lines, each {_PREFIX} and {_LEAST} to {_MOST} bytes in base64"


def read_secrets(path: Path) -> list[bytes]:
    """One secret, or two while the old one is replaced. Blocks. Raises ``ValueError`` that names the mistake, but no
    secret."""
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"the secret file {path} cannot be read: {error.strerror}") from None
    lines = data.split()
    try:
        secrets = [_secret(line.decode()) for line in lines]
    except ValueError:
        secrets = []
    if not 1 <= len(secrets) <= 2 or len(data) > _LONGEST_FILE:
        raise ValueError(f"the secret file {path} must hold {_FORM}")
    return secrets


def signatures(secrets: Sequence[bytes], message: Message, seconds: int) -> str:
    """The header ``webhook-signature`` of a request that is sent at ``seconds`` since 1970."""
    signed = b"%s.%d.%s" % (message.id.encode(), seconds, message.body)
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def _secret(line: str) -> bytes:
    if not line.startswith(_PREFIX):
        raise ValueError
    text = line.removeprefix(_PREFIX)
    try:
        secret = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError from error
    if not _LEAST <= len(secret) <= _MOST:
        raise ValueError
    return secret
