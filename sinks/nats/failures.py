"""Turns an error of the NATS client or server into an error of the port: the sink retries, or an operator must act."""

from __future__ import annotations

import json
import ssl
from collections.abc import Collection
from typing import Final

import nats.errors
from nats.js.errors import APIError, NoStreamResponseError

from sinks.nats.settings import NatsSettings
from sinks.nats.subjects import pattern_of
from wormhole.host.tls import untrusted
from wormhole.model.errors import TargetRefused, TargetUnavailable

__all__ = ["STREAM_MISSING", "TOO_LARGE", "creation", "target_error"]

TOO_LARGE: Final = 10054
STREAM_MISSING: Final = 10059
_OTHER_STREAM: Final = 10060
_FULL: Final = 10077
_OPERATOR: Final = {400, 401, 403, 404}
_LOGIN: Final = ("authorization violation", "authentication", "nkey", "jwt")
_WINDOW_NS: Final = 600 * 10**9


def creation(stream: str, settings: NatsSettings) -> str:
    """The command that makes the stream."""
    body = {
        "name": stream,
        "subjects": [pattern_of(settings.subject, stream)],
        "allow_atomic": True,
        "duplicate_window": _WINDOW_NS,
    }
    return f"nats req '$JS.API.STREAM.CREATE.{stream}' '{json.dumps(body)}'"


def target_error(
    stream: str, settings: NatsSettings, error: BaseException, denied: Collection[str] = ()
) -> TargetUnavailable | TargetRefused:
    """The error of the port. ``denied``: the server's reports of missing rights since the connection began."""
    where = f"stream {stream} at {settings.url}"
    if isinstance(error, APIError):
        return _refused_by_server(where, stream, settings, error)
    text = str(error).removeprefix("nats: ")
    if any(word in text.lower() for word in _LOGIN):
        return TargetRefused(
            f"{settings.url} refuses the login",
            hint="correct the user in the URL, or the content of password_file or credentials_file",
            code="login-refused",
        )
    if isinstance(error, nats.errors.SecureConnWantedError):
        return TargetRefused(
            f"{settings.url} offers no encryption",
            hint="switch TLS on in the server, or write nats:// to send everything in the clear",
            code="certificate-refused",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return untrusted(settings.url, error.verify_message)
    if denied and isinstance(error, TimeoutError):
        return TargetRefused(
            f"the account may not use {where}",
            hint=f"let it publish to {pattern_of(settings.subject, stream)} and $JS.API.STREAM.INFO.{stream}, and "
            "subscribe to _INBOX.>",
            code="account-lacks-rights",
        )
    if isinstance(error, (nats.errors.NoRespondersError, NoStreamResponseError)):
        return TargetUnavailable(
            f"{settings.url} has no JetStream just now", hint="switch JetStream on for the server and the account"
        )
    return TargetUnavailable(f"{where} does not answer: {text or type(error).__name__}")


def _refused_by_server(
    where: str, stream: str, settings: NatsSettings, error: APIError
) -> TargetUnavailable | TargetRefused:
    said = f"{error.description} (error {error.err_code})"
    if error.err_code == STREAM_MISSING:
        return TargetRefused(
            f"{settings.url} has no stream {stream}",
            hint=f"make it, for example by\n{creation(stream, settings)}\nIf it was deleted, what it held is not "
            "published again: `wormholectl backfill start` delivers the existing rows",
        )
    if error.err_code == _OTHER_STREAM:
        return TargetRefused(
            f"another stream than {stream} of {settings.url} has a subject of the sink",
            hint="correct stream or subject of the sink, or the subjects of the streams",
        )
    if error.err_code == _FULL:
        return TargetUnavailable(
            f"{where} is full: {error.description}",
            hint="raise its limits, or delete messages; the sink continues by itself",
        )
    if error.code in _OPERATOR:
        return TargetRefused(f"{where} refuses a record: {said}", hint="correct the settings of the stream")
    return TargetUnavailable(f"{where} refuses a record just now: {said}")
