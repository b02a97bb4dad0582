"""The settings of a sink of Redis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, field_validator, model_validator

from sinks.envelopes.settings import HeldSettings
from sinks.redis.keys import check_template
from wormhole.config.fields import PathFromHere, Seconds

__all__ = ["FORM", "RedisSettings"]

FORM: Final = "redis://[USER@]HOST[:PORT][/DATABASE], with rediss:// for TLS"
_TLS: Final = {"rediss", "valkeys"}
_PORT: Final = 6379

Template = Annotated[str, AfterValidator(check_template)]


class RedisSettings(HeldSettings):
    """``mode``: whether the key of a changed row is removed, or set to the row. ``remember_deleted``: in the mode
    ``set``, seconds for which older values of a deleted row are refused. ``key``: the template of the keys of rows.
    ``keys``: templates of single tables, by their names in updates.

    ``tls_ca``: certificates of the authorities that may sign the server's certificate; ``None``: the system's
    authorities. ``tls_cert`` and ``tls_key``: the sink's own certificate and key, for a server that asks for one.
    """

    mode: Literal["delete", "set"] = "delete"
    remember_deleted: Seconds = 3600.0
    key: Template = "{table}:{key}"
    keys: Mapping[str, Template] = {}
    tls_ca: PathFromHere | None = None
    tls_cert: PathFromHere | None = None
    tls_key: PathFromHere | None = None

    @property
    def verifies(self) -> bool:
        return self.mode == "set"

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            raise ValueError(f"must be {FORM}") from None
        database = parts.path.removeprefix("/")
        if (
            not parts.hostname
            or port == 0
            or parts.query
            or parts.fragment
            or (database and not (database.isascii() and database.isdigit() and len(database) < 6))
        ):
            raise ValueError(f"must be {FORM}")
        return value

    @model_validator(mode="after")
    def _account(self) -> Self:
        if urlsplit(self.url).username and self.password_file is None:
            raise ValueError("a URL with a user needs password_file")
        return self

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if (self.tls_ca or self.tls_cert or self.tls_key) and not self.tls:
            raise ValueError("tls_ca, tls_cert and tls_key need a URL with rediss://")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together")
        return self

    @property
    def form(self) -> str:
        """A text that identifies the form of the stored keys and values."""
        return f"{self.mode} {self.key} {sorted(self.keys.items())}"

    @property
    def tls(self) -> bool:
        """Whether the connections are encrypted."""
        return urlsplit(self.url).scheme in _TLS

    @property
    def host(self) -> str:
        """The server's host."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The server's port."""
        return urlsplit(self.url).port or _PORT

    @property
    def user(self) -> str | None:
        """The account; ``None``: the server's default account."""
        name = urlsplit(self.url).username
        return unquote(name) if name else None

    @property
    def database(self) -> int:
        """The number of the database."""
        return int(urlsplit(self.url).path.removeprefix("/") or 0)
