"""The settings of a sink of NATS JetStream."""

from __future__ import annotations

import re
import ssl
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from pydantic import field_validator, model_validator

from sinks.envelopes.settings import HeldRecordSettings
from sinks.nats.subjects import PER_RECORD, check_template
from wormhole.config.fields import PathFromHere
from wormhole.host.tls import client_context

__all__ = ["FORM", "NatsSettings", "is_stream_name"]

FORM: Final = "nats://[USER@]HOST[:PORT][,HOST[:PORT]], or tls:// instead of nats://"
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)(:[0-9]{1,5})?", re.ASCII)
_STREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)


def is_stream_name(text: str) -> bool:
    """Whether a stream may have this name."""
    return _STREAM.fullmatch(text) is not None


class NatsSettings(HeldRecordSettings):
    """``stream``: the stream's name; ``None``: the sink's name. ``subject``: the template of the subjects, see
    :mod:`sinks.nats.subjects`.

    ``ca_file``: a PEM file of the authorities that may sign the server's certificate; ``None``: the system's
    authorities. ``cert_file`` and ``key_file``: the sink's own certificate and its private key. All three are for
    ``tls://``.

    ``password_file``: holds the password of the URL's user, or a token if the URL has no user. ``credentials_file``:
    holds a user's key instead, see :mod:`sinks.nats.nkeys`.
    """

    stream: str | None = None
    subject: str = "{stream}.{table}"
    credentials_file: PathFromHere | None = None
    ca_file: PathFromHere | None = None
    cert_file: PathFromHere | None = None
    key_file: PathFromHere | None = None

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        if parts.path.strip("/") or parts.query or parts.fragment or not all(map(_HOST.fullmatch, hosts)):
            raise ValueError(f"must be {FORM}")
        return value

    @field_validator("stream")
    @classmethod
    def _stream(cls, value: str | None) -> str | None:
        if value is not None and not is_stream_name(value):
            raise ValueError("must be the name of a stream: at most 255 letters, digits, '_' and '-'")
        return value

    @field_validator("subject")
    @classmethod
    def _subject(cls, value: str) -> str:
        check_template(value)
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together")
        if not self.encrypted and (self.ca_file or self.cert_file):
            raise ValueError("ca_file, cert_file and key_file are for tls://")
        if self.user is not None and self.password_file is None:
            raise ValueError("a URL with a user needs password_file")
        if self.credentials_file is not None and self.password_file is not None:
            raise ValueError("password_file and credentials_file exclude each other")
        return self

    @property
    def encrypted(self) -> bool:
        """Whether the connection has to be encrypted after the server's greeting."""
        return urlsplit(self.url).scheme == "tls"

    @property
    def user(self) -> str | None:
        """The account; ``None``: the URL has none."""
        return unquote(urlsplit(self.url).netloc.rpartition("@")[0]) or None

    @property
    def servers(self) -> list[str]:
        """The URL of each server, without a user."""
        parts = urlsplit(self.url)
        return [f"{parts.scheme}://{host}" for host in parts.netloc.rpartition("@")[2].split(",")]

    @property
    def keys_in_subjects(self) -> bool:
        """Whether a subject shows a value of a row."""
        return PER_RECORD["key"] in self.subject

    def tls(self) -> ssl.SSLContext:
        """The context of ``tls://``. Blocks. Raises :class:`~wormhole.model.errors.TargetUnavailable`."""
        return client_context(self.ca_file, self.cert_file, self.key_file)
