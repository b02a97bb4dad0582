"""Singles as the shortest number: against the digits that Python's formatting finds, in both forms."""

from __future__ import annotations

import random
import struct
from types import ModuleType

import pytest

from tests.support.hot import hot_module

floats = hot_module("datastores.mysql.decode.floats")


def decoded(singles: object, data: bytes) -> float:
    out = bytearray(b"#" * 10)
    assert singles.put(out, 1, b"!" + data, 1) == 9  # type: ignore[attr-defined]
    assert out.startswith(b"#")
    assert out.endswith(b"#")
    result: float = struct.unpack("<d", out[1:9])[0]
    return result


def shortest(data: bytes) -> float:
    (x,) = struct.unpack("<f", data)
    for digits in range(9):
        candidate = float(f"{x:.{digits}e}")
        try:
            if struct.pack("<f", candidate) == data:
                return candidate
        except OverflowError:
            continue
    return float(x)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("-3.14", -3.14), ("16777216", 16777216.0), ("1073741824", 1073741800.0), ("1e-45", 1e-45)],
)
def test_numbers_that_people_write(floats: ModuleType, text: str, value: float) -> None:
    assert decoded(floats.Singles(), struct.pack("<f", float(text))) == value


def test_any_bits_are_what_the_reference_gives(floats: ModuleType) -> None:
    rng = random.Random(7)
    singles = floats.Singles()
    cases = [struct.pack("<f", x) for x in (0.0, -0.0, float("inf"), float("-inf"), 3.4028234663852886e38, 1e-12)]
    for _ in range(1500):
        cases += [rng.randbytes(4), struct.pack("<f", round(rng.uniform(-1e4, 1e4), rng.randrange(6)))]
    for data in cases:
        expected = shortest(data)
        got = decoded(singles, data)
        assert got == expected or (got != got and expected != expected), data.hex()
