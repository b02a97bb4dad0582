"""The kind ``https``, and ``http``."""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.port import Guarantee, Sink, SinkKind
from sinks.webhook.secrets import read_secrets
from sinks.webhook.settings import FORM, WebhookSettings
from wormhole.model.errors import UsageError

__all__ = ["KIND"]


class WebhookKind(SinkKind[WebhookSettings]):
    """See the port."""

    title: ClassVar[str] = "webhook"
    form: ClassVar[str] = FORM
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    requirement: ClassVar[str] = "wormhole-pubsub[webhook]"
    settings = WebhookSettings

    def open(self, name: str, settings: WebhookSettings) -> Sink:
        from sinks.webhook.sink import WebhookSink

        if settings.password_file is not None:
            raise UsageError(
                f"sink {name} has no use for password_file", hint="remove the key; requests are signed with secret_file"
            )
        try:
            read_secrets(settings.secret_file)
        except ValueError as error:
            raise UsageError(f"sink {name}: {error}") from error
        return WebhookSink(settings.application or name, settings)


KIND: Final = WebhookKind()
