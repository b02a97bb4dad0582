"""Decides which clients may change a publisher's flows: clients with the host's token, or with a certificate that the
configuration lists.

Subscribers have certificates of the same authority, so a valid certificate alone permits no change. The token is made
once for a state folder, and the publishers of that folder share it. A process that can read the token could also write
the marker store in the same folder.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from publisher.flows.refused_error import RefusedError
from wormhole.host.local_admin import token_path
from wormhole.host.private_files import private_opener
from wormhole.model.errors import ConfigError
from wormhole.model.replace_file import make_file

__all__ = ["OperatorAccess", "host_token"]

_TOKEN: Final = re.compile(r"[0-9a-f]{64}\n?")
_BEARER: Final = "Bearer "


def host_token(state_dir: Path) -> str:
    """The host's token. It is made if its file does not exist. Blocks.

    Raises :class:`~wormhole.model.errors.ConfigError` if the file cannot be written or read, if other users may read
    it, or if it does not contain a token.
    """
    path = token_path(state_dir)
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # If publishers of one folder start at the same time, the first file stays.
            make_file(path, f"{secrets.token_hex(32)}\n", opener=private_opener)
        mode = path.stat().st_mode & 0o777
        found = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"the token that permits changes, {path}, cannot be made or read: {error.strerror}",
            hint=(
                "publisher.state_dir must be a folder that this process may write to; remove the file if it is "
                "another user's"
            ),
            code="file-unwritable",
        ) from error
    if mode & 0o077:
        raise ConfigError(
            f"the token that permits changes, {path}, can be read by other users (mode {mode:03o})",
            hint="remove the file: the next start makes another one",
            code="credentials-exposed",
        )
    if not _TOKEN.fullmatch(found):
        raise ConfigError(
            f"{path} holds no token", hint="remove the file: the next start makes another one", code="record-invalid"
        )
    return found.strip()


@dataclass(frozen=True, slots=True)
class OperatorAccess:
    """``token``: the token of the host; ``admins``: names of certificates that permit changes."""

    token: str
    admins: Collection[str] = ()

    def check(self, authorization: Iterable[str], names: Iterable[str] | None) -> str:
        """Returns the name of the certificate that permits the request; empty if the token permits it.

        ``authorization``: the client's metadata of that name; ``names``: the names of its certificate, ``None`` without
        TLS. Raises :class:`~publisher.flows.refused_error.RefusedError`.
        """
        given = list(authorization)
        if given:
            expected = f"{_BEARER}{self.token}".encode()
            if len(given) == 1 and hmac.compare_digest(given[0].encode(), expected):
                return ""
            raise RefusedError(
                grpc.StatusCode.UNAUTHENTICATED,
                "that is not this host's token",
                hint="read it again: it is `admin.token` in the publisher's state_dir",
                code="not-permitted",
            )
        if names is None:
            raise RefusedError(
                grpc.StatusCode.UNAUTHENTICATED,
                "a change needs the host's token",
                hint="run the command on the publisher's host as the publisher's user",
                code="not-permitted",
            )
        known = sorted(set(names))
        permitted = [name for name in known if name in self.admins]
        if permitted:
            return permitted[0]
        raise RefusedError(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate of {', '.join(known) or 'no name'} may not change anything here",
            hint="list one of its names in `admins` under [publisher], or use the host's token",
            code="not-permitted",
        )
