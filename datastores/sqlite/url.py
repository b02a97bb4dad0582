"""Parses ``sqlite:///absolute/path.db``, with ``?max_changes=N`` as an option."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from wormhole.config.passwords import without_password
from wormhole.model.errors import UsageError

__all__ = ["FORM", "MAX_CHANGES", "SEQUENCE", "Address", "address_of", "check_url"]

FORM: Final = "sqlite:///absolute/path.db"
MAX_CHANGES: Final = 1_000_000
SEQUENCE: Final = re.compile(r"seq:(\d{1,19})")
"""The form of a logical position: the number of a change."""


@dataclass(frozen=True, slots=True)
class Address:
    """``max_changes``: the number of recorded changes at which the triggers stop recording."""

    path: Path
    max_changes: int


def check_url(url: str) -> None:
    """Check a URL. Raises ``ValueError`` that describes the valid form."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError(f"must be a URL such as {FORM}") from None
    named = parts.path.startswith("/") and not parts.path.endswith("/")
    if parts.scheme != "sqlite" or parts.netloc or not named or parts.fragment:
        raise ValueError(f"must be {FORM}, with three slashes")
    if [name for name, _ in options] not in ([], ["max_changes"]):
        raise ValueError(f"has an unknown option; known is max_changes, as in {FORM}?max_changes={MAX_CHANGES}")
    if options and not (options[0][1].isascii() and options[0][1].isdigit() and 1_000 <= int(options[0][1]) < 1 << 40):
        raise ValueError("must give max_changes as a number of at least 1000")


def address_of(url: str) -> Address:
    """The file that a URL names, with percent-encoding decoded, and the option. Raises :class:`UsageError`."""
    try:
        check_url(url)
    except ValueError as error:
        raise UsageError(
            f"{without_password(url)!r} {error}",
            hint="SQLite is read from this host's disk; percent-encode other characters",
        ) from None
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    return Address(Path(unquote(parts.path)), int(options.get("max_changes", MAX_CHANGES)))
