"""What Wormhole asks about the kind before a sink is opened: ``changelog:///absolute/path``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import unquote, urlsplit

from pydantic import field_validator

from sinks.envelopes.settings import HeldRecordSettings
from sinks.port import Guarantee, Sink, SinkKind

__all__ = ["KIND", "ChangelogSettings"]

_FORM: Final = "changelog:///absolute/path"


class ChangelogSettings(HeldRecordSettings):
    """The keys of the table ``[sinks.NAME]``. This kind has none of its own."""

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ValueError(f"must be {_FORM}")
        return value

    @property
    def path(self) -> Path:
        """The file."""
        return Path(unquote(urlsplit(self.url).path))


class ChangelogKind(SinkKind[ChangelogSettings]):
    """See the port."""

    title: ClassVar[str] = "Changelog"
    form: ClassVar[str] = _FORM
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    requirement: ClassVar[str] = "wormhole-changelog"
    settings = ChangelogSettings

    def open(self, name: str, settings: ChangelogSettings) -> Sink:
        from wormhole_changelog.sink import ChangelogSink

        return ChangelogSink(settings)


KIND: Final = ChangelogKind()
