"""Converts rows to objects of the application's types: dataclasses, or other types that pydantic validates."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, cast

from pydantic import (
    BeforeValidator,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from wormhole.formats.decoders import BadValue, JsonDecoder, MsgpackDecoder, without_ttl
from wormhole.model.errors import ModelMismatch, UsageError
from wormhole.model.values import UNAVAILABLE
from wormhole.wire.update import Update

__all__ = ["InUtc", "SetNames", "decode"]

_Model = TypeVar("_Model")
_ValueFormat = Literal["json", "msgpack", "ttl:json", "ttl:msgpack"]
_SHOWN: Final = 5
_AGAIN: Final = "write the model anew with `wormholectl models`, or correct it"


def _names(value: Any) -> Any:
    return (value.split(",") if value else ()) if isinstance(value, str) else value


def _in_utc(value: Any, validate: ValidatorFunctionWrapHandler) -> datetime:
    if isinstance(value, str) and value.endswith("+00"):  # some datastores write UTC like this
        value = f"{value}:00"
    found: datetime = validate(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


SetNames: Final = BeforeValidator(_names)
"""For a SET, which is text with commas: ``Annotated[frozenset[str], SetNames]``."""

InUtc: Final = WrapValidator(_in_utc)
"""For a point in time whose text is UTC and may lack the time zone: ``Annotated[datetime, InUtc]``."""


def decode(
    update: Update, model: type[_Model], *, before: bool = False, value_format: _ValueFormat | None = None
) -> _Model | None:
    """``update.after`` (with ``before`` the values before the change) as a ``model``. ``None`` if the update has no
    such values, as after a delete.

    A column becomes the field with its name (or with that ``validation_alias``). Columns without a field are left out.
    With ``value_format`` the value of a byte store is decoded. The prefix ``ttl:`` removes the time that a TtlDB
    appends to each value.

    Raises :class:`~wormhole.model.errors.ModelMismatch` for a row that does not fit the model, and
    :class:`~wormhole.model.errors.UsageError` for a type that is not a model.
    """
    if update.too_large:
        raise _mismatch(update, model, "its values were left out because it is too large", "raise max_update_bytes")
    row = update.before if before else update.after
    if row is None:
        return None
    given: object = row
    if value_format is not None:
        value = row.get("value")
        if not isinstance(value, bytes):
            raise _mismatch(
                update, model, "it has columns, not one value of bytes", f'leave value_format="{value_format}" out'
            )
        try:
            kind = value_format.removeprefix("ttl:")
            given = _decoder(kind).document(value if kind == value_format else without_ttl(value))
        except BadValue as error:
            raise _mismatch(update, model, str(error), "use the format that the writer uses") from None
    try:
        return cast(_Model, _adapter(cast(Any, model)).validate_python(given))
    except ValidationError as error:
        what, hint = _explained(error, "field" if value_format else "column")
        if value_format is None and isinstance(row.get("value"), bytes) and len(row) == 1:
            hint = 'name the format of its values: decode(update, MODEL, value_format="json") or "msgpack"'
        # Not `from error`, because it has the row's values, which must not be logged.
        raise _mismatch(update, model, what, hint) from None


@lru_cache(maxsize=256)
def _adapter(model: Any) -> TypeAdapter[Any]:
    try:
        adapter = TypeAdapter(model)
        adapter.rebuild()  # resolves names in annotations that were not defined when the class was made
        return adapter
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise UsageError(
            f"decode: {_called(model)} is no model: {error.message}",
            hint="give a dataclass or a pydantic model whose annotations are all defined",
        ) from None


@lru_cache
def _decoder(value_format: str) -> JsonDecoder | MsgpackDecoder:
    if value_format == "json":
        return JsonDecoder()
    if value_format != "msgpack":
        raise UsageError(
            f'decode: value_format="{value_format}" is none that is known',
            hint='give "json" or "msgpack", with ttl: before it for the values of a TtlDB',
        )
    try:
        return MsgpackDecoder()
    except ModuleNotFoundError:
        raise UsageError(
            'decode: value_format="msgpack" needs msgpack, which is not installed',
            hint="pip install msgpack",
            code="extra-missing",
        ) from None


def _explained(error: ValidationError, word: str) -> tuple[str, str]:
    """Two texts: the columns that do not fit, without their values, and the next step."""
    hint = _AGAIN
    reasons: dict[str, str] = {}
    for one in error.errors(include_url=False, include_context=False):
        at, value = one["loc"], one["input"]
        name = ".".join(map(str, at[:1] if word == "column" else at))
        if value is UNAVAILABLE:
            reason = "its value is not in the log"
            hint = "have the server log whole rows, or add `| Unavailable` to the field's type"
        elif one["type"] == "missing":
            reason = f"the row has no such {word}"
        else:
            reason = one["msg"]
            if isinstance(value, str) and one["type"].startswith("date"):
                hint = f"{_AGAIN}; a column with zero dates needs `wormholectl models --text-dates`"
        reasons.setdefault(f"{word} {name}" if name else "the value", reason)
    shown = [f"{where}: {reason}" for where, reason in list(reasons.items())[:_SHOWN]]
    more = len(reasons) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else ""), hint


def _mismatch(update: Update, model: Any, what: str, hint: str) -> ModelMismatch:
    return ModelMismatch(
        f"update {update.id} of {update.table} is no {_called(model)}: {what}",
        shard=update.shard,
        position=str(update.position),
        hint=hint,
    )


def _called(model: Any) -> str:
    return str(getattr(model, "__name__", None) or repr(model))
