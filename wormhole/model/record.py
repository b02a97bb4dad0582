"""Reads and checks small stored records: nodes of ZooKeeper and files of a state folder, each a JSON object.

The threat: a process that may write to ZooKeeper or to a state folder may be hostile. A record may hold other types,
texts of megabytes, numbers beyond every type, nesting beyond the stack, and fields that this release does not know.

The defence: a record has at most :attr:`StoredRecord.largest` bytes, its JSON is read by
:func:`~wormhole.model.json_input.read_json`, a value is never converted to another type, and each kind of value has
bounds, which are below. A record that does not fit causes an error of one line: it names the record and the field, and
quotes at most 40 characters. A field of a later release is ignored, so that releases can run side by side.

A model's fields have the stored names; ``copy``, which pydantic uses itself, is an alias. The stored values come from
attributes of the same names. If an attribute is renamed, code beside the model has to convert the name, so that the
stored form stays.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, ClassVar, Final, Self

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wormhole.model.errors import ConfigError
from wormhole.model.json_input import read_json
from wormhole.model.visible import visible

__all__ = [
    "LARGEST_COUNT",
    "Count",
    "Host",
    "Line",
    "Paragraph",
    "ProcessId",
    "Sentence",
    "StoredRecord",
    "Text",
    "Time",
    "Word",
    "complaint",
    "dumped",
]

LARGEST_COUNT: Final = 1 << 62
"""The limit of a count. It is below the 64 bits of the wire, so that counts can still rise."""
_LAST_S: Final = 253_402_214_400
"""The last day of the year 9999. A later time cannot be formatted."""
_QUOTED: Final = 40
_OF_PYDANTIC: Final = re.compile(r" after validation, not more| or instance of \w+")
"""Parts of pydantic's messages that name pydantic's own rules and types."""

Word = Annotated[str, MaxLen(100)]
Host = Annotated[str, MaxLen(300)]
Sentence = Annotated[str, MaxLen(500)]
Line = Annotated[str, MaxLen(1_000)]
Paragraph = Annotated[str, MaxLen(2_000)]
Text = Annotated[str, MaxLen(20_000)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
ProcessId = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
Time = Annotated[float, Field(ge=0, le=_LAST_S)]
"""Seconds since 1970."""


class StoredRecord(BaseModel):
    """A stored record; the fields of a subclass are its stored names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)
    largest: ClassVar = 512 << 10
    """Limit in bytes. An entry of the change history with the longest texts fits, even with each character escaped."""

    @classmethod
    def read(cls, data: str | bytes, where: str, hint: str = "") -> Self:
        """The record in ``data``. Raises :class:`~wormhole.model.errors.ConfigError`, which names ``where``."""
        try:
            if len(data) > cls.largest:
                raise ValueError(f"has {len(data):,} bytes; such a record has at most {cls.largest:,}")
            return cls.checked(_json_object(data))
        except ValueError as error:
            raise ConfigError(f"{where}: {error}", hint=hint, code="record-invalid") from error

    @classmethod
    def checked(cls, given: object) -> Self:
        """The record with these fields. Raises ``ValueError`` with a text of one line."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ValueError(complaint(error)) from None

    @classmethod
    def fields_of(cls, value: object) -> dict[str, Any]:
        """The fields to store: the attributes of ``value`` with the fields' names. A text that is too long is cut."""
        stored = ((field.alias or name, field) for name, field in cls.model_fields.items())
        return {name: _cut(getattr(value, name), field.metadata) for name, field in stored}

    def fields(self) -> dict[str, Any]:
        """The values by their stored names."""
        return {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}


def dumped(fields: dict[str, Any]) -> bytes:
    """The JSON of a record."""
    return json.dumps(fields, sort_keys=True).encode()


def complaint(error: ValidationError) -> str:
    """The first error: its field, the bound, and the beginning of the value."""
    first = error.errors(include_url=False)[0]
    place = visible(".".join(str(part)[:_QUOTED] for part in first["loc"]))
    if first["type"] == "missing":
        return f"{place} is missing"
    message = first["msg"].removeprefix("Value error, ")
    _, should, bound = _OF_PYDANTIC.sub("", message).partition(" should ")
    return f"{place} {f'must {bound}' if should else message}, not {str(first['input'])[:_QUOTED]!r}"


def _json_object(data: str | bytes) -> dict[str, Any]:
    try:
        given = read_json(data)
    except ValueError as error:
        raise ValueError(f"no valid JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError("must hold a JSON object")
    return given


def _cut(value: Any, bounds: list[Any]) -> Any:
    longest = next((bound.max_length for bound in bounds if isinstance(bound, MaxLen)), None)
    if longest is None or not isinstance(value, str) or len(value) <= longest:
        return value
    return f"{value[: longest - 3]}..."
