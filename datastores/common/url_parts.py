"""The common parts of the URLs of database servers: scheme, account, address and options.

No error message holds the password.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["EXPOSED", "UrlParts", "options_of"]

EXPOSED: Final = "may-read-password"
"""The only value of ``unverified_server``: the password is sent to any peer at the address."""


@dataclass(frozen=True, slots=True)
class UrlParts:
    """The parts of a URL. A part that the URL does not have is empty (``port``: 0, ``password``: ``None``).

    ``path``: the text between the port and the options, as written. ``query``: the options, as written.
    """

    scheme: str
    user: str
    password: str | None = field(repr=False)
    host: str
    port: int
    path: str
    query: str
    fragment: str

    @classmethod
    def parse(cls, text: str, schemes: Collection[str], form: str) -> UrlParts:
        """Read a URL with one of the ``schemes``. ``form``: its expected form, for messages. Raises ``ValueError``."""
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            raise ValueError(f"must be {form}; the host or the port is none") from None
        if url.scheme not in schemes or not text.startswith(f"{url.scheme}://"):
            raise ValueError(f"must be {form}")
        password = None if url.password is None else unquote(url.password)
        user, host = unquote(url.username or ""), unquote(url.hostname or "")
        return cls(url.scheme, user, password, host, port or 0, url.path, url.query, url.fragment)


def options_of(
    query: str, known: Sequence[str], paths: Collection[str], certificate: tuple[str, str]
) -> dict[str, str]:
    """The options of a URL, each once and with a value. ``paths``: the options that must be absolute paths.
    ``certificate``: the options for a certificate and for its key; one requires the other. Raises ``ValueError``.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if not set(options) <= set(known):
        # The message does not name the option: after a "?" that was not percent-encoded it may be part of a password.
        raise ValueError(f"has an unknown option; known are {', '.join(known)}")
    if len(options) != len(pairs) or not all(options.values()):
        raise ValueError("must give each option once, with a value")
    for name in paths:
        if not options.get(name, "/").startswith("/"):
            raise ValueError(f"must give {name} as an absolute path")
    if options.get("unverified_server", EXPOSED) != EXPOSED:
        raise ValueError(
            f"may have unverified_server={EXPOSED} only: whatever answers at the address gets the password"
        )
    cert, key = certificate
    if (cert in options) != (key in options):
        raise ValueError(f"must give {cert} and {key} together")
    return options
