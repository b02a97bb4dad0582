"""The formats of a store's values, declared per dataset or table. Filters that test named fields read them.

In a store of bytes a value is bytes to the log. ``spec`` is the declaration in the configuration, ``decoders`` reads
fields out of one value, ``table`` chooses the decoder of each table, and ``open`` makes the decoders of a
configuration.
"""

from __future__ import annotations

from wormhole.formats.decoders import ABSENT, COMPOSITE, BadValue, Decoder, FieldPath
from wormhole.formats.open import open_formats
from wormhole.formats.spec import FormatSpec
from wormhole.formats.table import ValueFormats

__all__ = ["ABSENT", "COMPOSITE", "BadValue", "Decoder", "FieldPath", "FormatSpec", "ValueFormats", "open_formats"]
