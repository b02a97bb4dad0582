"""The fuzz runner finds what it is there to find, and says how to see it again."""

from __future__ import annotations

import random
import struct
import types
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.fuzz import runner
from tests.fuzz.mutate import MUTATIONS, mutate
from tests.fuzz.runner import Tally, case, fuzz_target, table
from tests.fuzz.target import Target


class RefusedError(Exception):
    """The documented error of the decoders below."""


def careful(data: bytes) -> bytes:
    if len(data) < 4:
        raise RefusedError("no room for the length")
    (length,) = struct.unpack_from("<I", data)
    if length != len(data) - 4:
        raise RefusedError("the length is wrong")
    return data[4:]


def trusting(data: bytes) -> bytes:
    (length,) = struct.unpack_from("<I", data)
    return data[4 : 4 + length]


def make(rng: random.Random) -> bytes:
    body = rng.randbytes(rng.randrange(20))
    return struct.pack("<I", len(body)) + body


def target(decode: Callable[[bytes], bytes], **changes: object) -> Target:
    settings: dict[str, object] = {
        "name": "sample",
        "module": "struct",
        "decode": lambda module, data: decode(data),
        "make": make,
        "allowed": (RefusedError,),
        **changes,
    }
    return Target(**settings)  # type: ignore[arg-type]


def test_a_careful_decoder_passes_and_is_counted() -> None:
    tallies, failures = fuzz_target(target(careful), seed=1, inputs=200)
    assert failures == []
    assert tallies[0].inputs == 200
    assert tallies[0].values + tallies[0].refused == 200
    assert tallies[0].values >= 200 // 16


def test_an_undocumented_error_is_a_failure_with_its_bytes_and_seed() -> None:
    _, failures = fuzz_target(target(trusting), seed=3, inputs=2000)
    assert failures
    text = str(failures[0])
    assert "struct" in text or "error" in text
    assert "seed 3" in text
    assert f"--hex {failures[0].data.hex()}" in text
    data, _ = case(target(trusting), 3, failures[0].number)
    assert data == failures[0].data


def test_it_stops_after_a_few_failures() -> None:
    def broken(data: bytes) -> bytes:
        raise ValueError(data)

    _, failures = fuzz_target(target(broken), seed=1, inputs=1000)
    assert len(failures) == 5


def test_refusing_a_valid_input_is_a_failure() -> None:
    def paranoid(data: bytes) -> bytes:
        raise RefusedError("never")

    _, failures = fuzz_target(target(paranoid), seed=1, inputs=2)
    assert "refused a valid input" in str(failures[0])


def test_a_slow_decode_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SLOW", 0.0)
    _, failures = fuzz_target(target(careful), seed=1, inputs=1)
    assert "took" in str(failures[0])


def test_forms_that_disagree_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwoForms(Target):
        def forms(self) -> dict[str, ModuleType]:
            return {"interpreted": types.ModuleType("wide"), "compiled": types.ModuleType("narrow")}

    def decode(module: ModuleType, data: bytes) -> int:
        return len(data) if module.__name__ == "wide" else len(data) & 0x0F

    both = TwoForms("sample", "struct", decode, make, (RefusedError,), observe=lambda value: value)
    _, failures = fuzz_target(both, seed=1, inputs=200)
    assert failures
    assert "disagree" in str(failures[0])


def test_the_table_has_a_line_per_decoder_and_form() -> None:
    lines = table([Tally("a", "interpreted", 10, 6, 4, 2.0), Tally("b", "compiled", 1, 1, 0, 0.0)]).splitlines()
    assert lines[0].split() == ["decoder", "form", "inputs", "values", "refused", "inputs/s"]
    assert lines[1].split() == ["a", "interpreted", "10", "6", "4", "5"]
    assert len(lines) == 3


def test_inputs_follow_from_the_seed_alone() -> None:
    first = [case(target(careful), 7, number) for number in range(50)]
    assert first == [case(target(careful), 7, number) for number in range(50)]
    assert first != [case(target(careful), 8, number) for number in range(50)]


def test_every_mutation_changes_something_and_none_fails() -> None:
    rng = random.Random(5)
    for mutation in MUTATIONS:
        changed = 0
        for _ in range(200):
            data = make(rng)
            broken = bytearray(data)
            mutation(rng, broken, make(rng))
            changed += bytes(broken) != data
        assert changed > 100, mutation
    assert mutate(rng, b"", b"x") == b""
