"""Reads named fields from one value, for each format. Pure: bytes in, values out, or :class:`BadValue`.

A field is found by its path, ``("customer", "address", "city")``. The result is a scalar in the form of
:mod:`wormhole.model.values`; :data:`ABSENT` if the value has no such field; :data:`COMPOSITE` if the field is a list,
an object or another value that cannot be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn, Protocol, final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from wormhole.model.values import Value

__all__ = ["ABSENT", "COMPOSITE", "Absent", "BadValue", "Composite", "Decoder", "FieldPath", "Found"]
__all__ += ["JsonDecoder", "MsgpackDecoder", "ProtobufDecoder", "TtlDecoder", "without_ttl"]

FieldPath = tuple[str, ...]


class BadValue(ValueError):  # noqa: N818  # content of the log, not a failure of this code
    """A value that is not of the declared format. Its text is the reason, in a few words."""


@final
class Absent:
    """The type of :data:`ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


@final
class Composite:
    """The type of :data:`COMPOSITE`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "COMPOSITE"


ABSENT: Final = Absent()
"""The value was read and has no such field: distinct from null, and from a value that the log does not hold."""

COMPOSITE: Final = Composite()
"""A list, an object, or another value that no filter can compare."""

Found = Value | Absent | Composite


class Decoder(Protocol):
    """One format. ``name``: its name in errors."""

    name: str

    def extract(self, value: bytes, paths: Sequence[FieldPath]) -> list[Found]:
        """The field at each path. Raises :class:`BadValue`, and nothing else, whatever the bytes are."""

    def problem(self, path: FieldPath) -> str | None:
        """The reason if no value of this format can have the field; ``None`` if one can."""


def _walk(document: object, paths: Sequence[FieldPath]) -> list[Found]:
    if type(document) is not dict:
        return [ABSENT] * len(paths)
    found: list[Found] = []
    for path in paths:
        if len(path) == 1:
            field = document.get(path[0], ABSENT)
            found.append(field if type(field) in _SCALARS else COMPOSITE)
            continue
        at: Any = document
        for name in path:
            at = at.get(name, ABSENT) if type(at) is dict else ABSENT
            if at is ABSENT:
                break
        kind = type(at)
        found.append(at if kind in _SCALARS else COMPOSITE)
    return found


_SCALARS: Final = frozenset((str, int, bool, float, Decimal, bytes, type(None), Absent))


_JSON_SPACE: Final = " \t\n\r"


def _refused(text: str) -> NoReturn:
    raise BadValue(f"{text} is no JSON number")


class JsonDecoder:
    """UTF-8 JSON. Numbers are exact (integers, else decimals). If a name is repeated, the last value is used."""

    name = "json"

    def __init__(self) -> None:
        # decode() would look for white space with regular expressions, which costs as much as a small document.
        self._decode = json.JSONDecoder(parse_float=Decimal, parse_constant=_refused).raw_decode

    def extract(self, value: bytes, paths: Sequence[FieldPath]) -> list[Found]:
        """See :class:`Decoder`."""
        return _walk(self.document(value), paths)

    def document(self, value: bytes) -> object:
        """The whole value. Raises :class:`BadValue`."""
        try:
            text = value.decode()
            document, end = self._decode(text, 0 if text[:1] in "{[" else len(text) - len(text.lstrip(_JSON_SPACE)))
            if end != len(text) and text[end:].strip(_JSON_SPACE):
                raise BadValue(f"no valid JSON: something follows the value at {end}")
            return document
        except BadValue:
            raise
        except UnicodeDecodeError as error:
            raise BadValue(f"byte {error.start} is no UTF-8") from error
        except RecursionError as error:
            raise BadValue("nested too deep") from error
        except (ValueError, ArithmeticError) as error:
            raise BadValue(f"no valid JSON: {str(error)[:120]}") from error

    def problem(self, path: FieldPath) -> str | None:
        """A document may have any field."""
        return None


class MsgpackDecoder:
    """MessagePack; fields are the entries of maps whose keys are strings."""

    name = "msgpack"

    def __init__(self) -> None:
        import msgpack  # here: it is in the extra `publisher`, and most subscribers need none

        self._decode = msgpack.unpackb

    def extract(self, value: bytes, paths: Sequence[FieldPath]) -> list[Found]:
        """See :class:`Decoder`."""
        return _walk(self.document(value), paths)

    def document(self, value: bytes) -> object:
        """The whole value. Raises :class:`BadValue`."""
        try:
            return self._decode(value, raw=False, strict_map_key=False)
        except RecursionError as error:
            raise BadValue("nested too deep") from error
        except Exception as error:  # the library documents no base class: an unhashable map key is a TypeError
            raise BadValue(f"no valid MessagePack: {type(error).__name__} {str(error)[:120]}") from error

    def problem(self, path: FieldPath) -> str | None:
        """A map may have any key."""
        return None


class ProtobufDecoder:
    """One message type.

    A field without presence that is not set has its default value; one with presence is absent. An enum is its value's
    name (a number if the number has no name). A map's entry is found by its key, if that is a string.
    """

    def __init__(self, message: type[Message]) -> None:
        self._message = message
        self.name = f"protobuf {message.DESCRIPTOR.full_name}"

    def extract(self, value: bytes, paths: Sequence[FieldPath]) -> list[Found]:
        """See :class:`Decoder`."""
        try:
            message = self._message.FromString(value)
        except ProtobufDecodeError as error:
            raise BadValue(f"no valid message: {str(error)[:120]}") from error
        return [_in_message(message, path) for path in paths]

    def problem(self, path: FieldPath) -> str | None:
        """A message has the fields that its descriptor lists."""
        at: Any = self._message.DESCRIPTOR  # a Descriptor, in one of the library's two types
        names = iter(path)
        for name in names:
            if at is None:
                return f"{'.'.join(path)} goes on below a field that has no parts"
            field = at.fields_by_name.get(name)
            if field is None:
                return f"the message {at.full_name} has no field {name}; it has {', '.join(at.fields_by_name.keys())}"
            at = field.message_type
            if at is not None and at.GetOptions().map_entry:
                if next(names, None) is None:
                    return None
                if at.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
                    return f"the keys of the map {name} are no strings"
                at = at.fields_by_name["value"].message_type
            elif field.is_repeated:
                at = None
        return None


def _in_message(message: Any, path: FieldPath) -> Found:
    at = message
    names = iter(path)
    for name in names:
        if not isinstance(at, Message):
            return ABSENT
        field = at.DESCRIPTOR.fields_by_name.get(name)
        if field is None or (field.has_presence and not at.HasField(name)):
            return ABSENT
        at = getattr(at, name)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            key = next(names, None)
            if key is None:
                return COMPOSITE
            field = kind.fields_by_name["value"]
            if kind.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING or key not in at:
                return ABSENT
            at = at[key]
        elif field.is_repeated:
            return COMPOSITE if next(names, None) is None else ABSENT
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(at)
            at = at if named is None else named.name
    return at if type(at) in _SCALARS else COMPOSITE


_TTL_BYTES: Final = 4


def without_ttl(value: bytes) -> bytes:
    """A value of a database with times to live, without the time at its end. Raises :class:`BadValue`."""
    if len(value) < _TTL_BYTES:
        raise BadValue(f"{len(value)} bytes cannot end with the time of the write")
    return value[:-_TTL_BYTES]


class TtlDecoder:
    """Values followed by the time of their write. ``inner`` reads the bytes before it."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner
        self.name = inner.name

    def extract(self, value: bytes, paths: Sequence[FieldPath]) -> list[Found]:
        """See :class:`Decoder`."""
        return self._inner.extract(without_ttl(value), paths)

    def problem(self, path: FieldPath) -> str | None:
        """See :class:`Decoder`."""
        return self._inner.problem(path)
