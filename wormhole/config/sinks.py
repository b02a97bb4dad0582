"""The tables ``[sinks.NAME]``: the stores into which this host writes an application's updates.

The package of each kind of sink defines its options. This module reads the URL and the application, and passes the
other options on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, field_validator

from wormhole.config.fields import Name, Settings
from wormhole.config.passwords import PASSWORD_OPTION

__all__ = ["SinkTable"]


class SinkTable(Settings):
    """One table ``[sinks.NAME]``.

    ``url``: the URL of the store, without a password; its scheme is the kind. ``application``: the name of the
    application whose updates the sink receives; ``None``: the sink's own name. ``options``: all other keys.
    """

    model_config = ConfigDict(extra="allow")

    url: str
    application: Name | None = None

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        try:
            scheme, password = urlsplit(value).scheme, urlsplit(value).password
        except ValueError:
            raise ValueError("must be a URL, SCHEME://...") from None
        if not scheme:
            raise ValueError("must be a URL, SCHEME://...")
        if password is not None or PASSWORD_OPTION.search(value):
            raise ValueError("must not hold a password: put it into a file of its own and name that with password_file")
        return value

    @property
    def kind(self) -> str:
        """The scheme of ``url``."""
        return urlsplit(self.url).scheme

    @property
    def options(self) -> Mapping[str, Any]:
        """The keys that belong to the kind, as the file has them."""
        return self.model_extra or {}
