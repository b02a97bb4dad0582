"""The configurations, filters and programs of docs/coming-from.md are valid."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import Page
from wormhole.config.load import parse
from wormhole.filters.parser import parse as parse_filter

_PAGE = Page("docs/coming-from.md", {})


def test_the_configuration_is_valid() -> None:
    [text] = _PAGE.blocks("toml")

    application = parse(text, "shop.toml").applications["search"]

    assert list(application.tables or ()) == ["shop.users", "shop.orders"]


@pytest.mark.parametrize("where", re.findall(r"`where = '(.+?)'`", _PAGE.text))
def test_each_filter_is_valid(where: str) -> None:
    parse_filter(where)


def test_the_program_has_a_handler() -> None:
    [program] = _PAGE.blocks("python")
    names: dict[str, object] = {"__name__": "orders"}

    exec(compile(program, "orders.py", "exec"), names)

    assert callable(getattr(names["Orders"], "on_update", None))
