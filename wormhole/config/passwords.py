"""Removes passwords from URLs and texts, before these are logged or shown."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["PASSWORD_OPTION", "without_password"]

# Repetitions do not overlap or are bounded, so the time is linear in the length of the text, which a peer may have
# chosen.
_PASSWORD: Final = re.compile(r"(?s)(://[^/@\s:]*):.*\Z")
# An address without a scheme: `user:password@zk1:2181`.
_BARE_PASSWORD: Final = re.compile(r"((?:^|[\s,\"'])[^/@\s:,\"']+):[^/@\s]{0,500}@")
PASSWORD_OPTION: Final = re.compile(r"(?i)([?&](?:passw(?:or)?d|pwd)=)[^&\s\"']*")
"""A password in the query of a URL."""


def without_password(text: str) -> str:
    """A URL, or a text with one, with ``**`` instead of the password, also if the URL is malformed or lacks its
    scheme.
    """
    before, at, after = text.rpartition("@")
    text = _PASSWORD.sub(r"\1:***", before) + at + after
    return PASSWORD_OPTION.sub(r"\1***", _BARE_PASSWORD.sub(r"\1:***@", text))
