"""What counts as a statement."""

from __future__ import annotations

from scripts.statements import statements


def test_docstrings_and_comments_do_not_count_and_every_nested_statement_does() -> None:
    source = (
        '"""A module."""\nclass A:\n    """A class."""\n    def f(self):\n        """A function."""\n        # '
        "nothing\n        if self:\n            return 1; pass\n"
    )
    assert statements(source) == 5
    assert statements("x = 'no docstring'\nasync def f():\n    'a docstring'\n    await g()\n") == 3
