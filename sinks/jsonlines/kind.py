"""The kind ``jsonlines``."""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.jsonlines.settings import FORM, JsonLinesSettings
from sinks.port import Guarantee, Sink, SinkKind
from wormhole.model.errors import UsageError

__all__ = ["KIND"]

_USELESS: Final = {False: {"password_file"}, True: {"password_file", "rotate_size", "rotate_every"}}
"""The settings that have no use, by whether the documents go to standard output."""


class JsonLinesKind(SinkKind[JsonLinesSettings]):
    """See the port."""

    title: ClassVar[str] = "JSON lines"
    form: ClassVar[str] = FORM
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    requirement: ClassVar[str] = "wormhole-pubsub[cli]"
    settings = JsonLinesSettings

    def open(self, name: str, settings: JsonLinesSettings) -> Sink:
        from sinks.jsonlines.sink import JsonLinesSink

        useless = settings.model_fields_set & _USELESS[settings.folder is None]
        if useless:
            raise UsageError(
                f"sink {name} has no use for {' and '.join(sorted(useless))}",
                hint="remove the key"
                if settings.folder
                else "remove the key, or write to jsonlines:///absolute/folder",
            )
        return JsonLinesSink(settings)


KIND: Final = JsonLinesKind()
