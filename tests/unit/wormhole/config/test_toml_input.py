"""TOML that Python's parser takes, and configuration cannot use."""

from __future__ import annotations

import pytest

from wormhole.config.toml_input import read_toml


def test_what_is_right_is_read() -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    assert read_toml(f"a = {least}\nb = {most}\nc.d = [[true, 1.5]]") == {
        "a": least,
        "b": most,
        "c": {"d": [[True, 1.5]]},
    }
    assert read_toml("a = " + "[" * 90 + "]" * 90)


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 19, "-9223372036854775809", "0x" + "f" * 5000])
@pytest.mark.parametrize("text", ["a = {}", "a.b = [1, {}]", "[[a]]\nb = [[{}]]"])
def test_a_number_of_too_many_digits_is_refused(text: str, number: str) -> None:
    with pytest.raises(ValueError, match=r"^a number has too many digits$"):
        read_toml(text.replace("{}", number))


@pytest.mark.parametrize("text", ["a = " + "[" * 100 + "]" * 100, "a = " + "[" * 100_000, ".".join("a" * 200) + " = 1"])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        read_toml(text)


def test_what_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        read_toml("a = 1\nb = =\n")
