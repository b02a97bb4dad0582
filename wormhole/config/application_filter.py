"""The configured filter of an application, and the key with which its masks hash."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wormhole.config.model import ApplicationConfig
from wormhole.filters import Filter, MaskKey, Projection
from wormhole.formats import ValueFormats
from wormhole.model.errors import ConfigError

__all__ = ["application_filter", "mask_key_exposure", "read_mask_key"]

_LONGEST: Final = 4096
_ALL_USERS: Final = 0o007


def application_filter(
    application: ApplicationConfig, formats: ValueFormats | None = None, key: MaskKey | None = None
) -> Filter:
    """The filter and projection of an application.

    ``key``: needed only to hash its updates; to examine the filter no key is needed. Raises
    :class:`~wormhole.model.errors.FilterError`.
    """
    projection = Projection.parse(application.columns, application.mask, key)
    return Filter.parse(application.where or None, application.tables, formats, projection)


def read_mask_key(path: Path | None) -> MaskKey:
    """The key in the file that ``publisher.mask_key_file`` names: its bytes without the line end.

    Raises :class:`~wormhole.model.errors.ConfigError`, which shows no part of the key.
    """
    make = "`openssl rand -hex 32` writes one; every host that publishes or replays needs the same"
    if path is None:
        raise ConfigError(
            'publisher.mask_key_file is not set, and a mask is "hash"',
            hint=f"name a file with a secret there: {make}",
            code="config-invalid",
        )
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
        if len(data) > _LONGEST:
            raise ValueError(f"has more than {_LONGEST} bytes")
        return MaskKey(data.rstrip(b"\r\n"))
    except OSError as error:
        raise ConfigError(
            f"publisher.mask_key_file: {path} cannot be read: {error.strerror}",
            hint="check the path and its permissions",
            code="config-invalid",
        ) from None
    except ValueError as error:
        raise ConfigError(f"publisher.mask_key_file: {path} {error}", hint=make, code="config-invalid") from None


def mask_key_exposure(path: Path) -> str:
    """A warning if every user of this host can read the key; otherwise empty. With the key hashes can be reversed."""
    try:
        exposed = path.stat().st_mode & _ALL_USERS
    except OSError:  # `read_mask_key` reports it
        return ""
    if not exposed:
        return ""
    return (
        f"publisher.mask_key_file: every user of this host can read {path}, and so find out what was hashed. Next: "
        f"chmod o-rwx {path}"
    )
