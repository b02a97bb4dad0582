"""The settings of a sink of JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pydantic import field_validator

from sinks.envelopes.settings import HeldRecordSettings
from wormhole.config.fields import Seconds, Size

__all__ = ["FORM", "JsonLinesSettings"]

FORM: Final = "jsonlines:///absolute/folder, or jsonlines:- for standard output"
_OUTPUT: Final = "jsonlines:-"


class JsonLinesSettings(HeldRecordSettings):
    """The settings. ``rotate_size``: a file is finished after the write that makes it larger than so many bytes.
    ``rotate_every``: a file with at least one document is finished after so many seconds.
    """

    rotate_size: Size = 256 << 20
    rotate_every: Seconds = 3600.0

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if value != _OUTPUT and (
            parts.netloc or parts.query or parts.fragment or not parts.path.startswith("/") or "\0" in unquote(value)
        ):
            raise ValueError(f"must be {FORM}")
        return value

    @property
    def folder(self) -> Path | None:
        """The folder of the files; ``None``: the documents go to standard output."""
        return None if self.url == _OUTPUT else Path(unquote(urlsplit(self.url).path))
