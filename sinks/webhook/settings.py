"""The settings of a webhook."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from sinks.envelopes.settings import HeldRecordSettings
from wormhole.config.fields import PathFromHere, Seconds, Size
from wormhole.host.tls import is_loopback

__all__ = ["FORM", "WebhookSettings"]

FORM: Final = "https://host/path; http://host/path for this host only, unless insecure = true"
_LONGEST_S: Final = 15.0


def _timeout(value: float) -> float:
    if value > _LONGEST_S:
        raise ValueError(f"must be at most {_LONGEST_S:g} s")
    return value


class WebhookSettings(HeldRecordSettings):
    """``secret_file``: one or two secrets of Standard Webhooks, one a line. ``ca_file``: the authorities that sign the
    receiver's certificate; ``None``: those of the system. ``insecure``: whether ``http://`` may leave this host.
    ``timeout``: seconds until a whole answer has to be there. ``batch_records`` and ``batch_size``: the most records
    and bytes of a request.
    """

    secret_file: PathFromHere
    ca_file: PathFromHere | None = None
    insecure: bool = False
    timeout: Annotated[Seconds, AfterValidator(_timeout)] = 15.0
    batch_records: int = Field(default=100, ge=1, le=10_000)
    batch_size: Size = 1 << 20

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        try:
            usable = parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.username is not None or parts.fragment or not value.isprintable() or " " in value:
            raise ValueError(f"must be {FORM}")
        return value

    @model_validator(mode="after")
    def _encrypted(self) -> WebhookSettings:
        parts = urlsplit(self.url)
        if parts.scheme != "https" and not self.insecure and not is_loopback(parts.hostname or ""):
            raise ValueError("http:// sends rows unencrypted: write https://, or insecure = true")
        return self

    @property
    def shown(self) -> str:
        """Scheme, host and port, without path and query, which may contain secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"
