from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.config.passwords import without_password


@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8))
def test_no_password_is_shown_however_it_is_written(password: str) -> None:
    for text in (f"mysql://u:{password}@h:3306/?tls=off", f"error in 'mysql://u:{password}@h'"):
        assert password not in without_password(text)


@pytest.mark.parametrize("text", ["mysql://u:123?top secret@h", "mysql://u:1/top secret@h", "mysql://u:1#top secret@h"])
def test_a_password_that_looks_like_another_part_is_not_shown_either(text: str) -> None:
    assert "secret" not in without_password(text)


def test_what_is_shown_of_a_url() -> None:
    assert without_password("mysql://u:p/a@ss@h:1/?tls=off") == "mysql://u:***@h:1/?tls=off"
    assert without_password("mysql://u@h/?password=secret&tls=off") == "mysql://u@h/?password=***&tls=off"
    assert without_password("mysql://u@h:3306") == "mysql://u@h:3306"
