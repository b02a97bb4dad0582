"""Which lines of the documents are too long, how generated items are wrapped, and how comments begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.prose import bullet, documents, long_lines, without_subject

URL = f"https://example.org/{'x' * 120}"


@pytest.mark.parametrize("name", ["README.md", "docs/a.md", "examples/b/README.md", "docs/pictures/c.svg"])
def test_a_line_over_120_characters_is_named_with_its_number(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"first\n{'ä' * 118} b\n  {URL}\n{'x' * 119} b\n", encoding="utf-8")
    assert list(long_lines(tmp_path)) == [f"{name}:4: 121 characters, at most 120: wrap it"]


def test_a_row_of_a_table_is_not_excepted(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"| {URL} |\n")
    (problem,) = long_lines(tmp_path)
    assert problem.endswith("at most 120: a table with such a row becomes a list")


def test_what_others_wrote_is_no_document_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "a.md").write_text("x " * 100)
    assert documents(tmp_path) == []


def test_an_item_is_wrapped_between_words_only() -> None:
    assert bullet(f"{'a-b' * 30} {'c-d' * 30}") == f"- {'a-b' * 30}\n  {'c-d' * 30}"
    assert bullet(f"see {URL}", "  ") == f"  - see\n    {URL}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1  # of a row\n", [(1, "comment")]),
        ("x = 1\n# Of a row.\ny = 1\n", [(2, "comment")]),
        ("x = 1  # bytes\n# of a row\n", [(2, "comment")]),
        ('def f():\n    """Of a row."""\n', [(2, "docstring")]),
        ('x = 1  # of a row\n"""\nOf a row."""\n', [(1, "comment"), (2, "docstring")]),
        ("# The bytes\n# of a row.\nx = '# of a row'  # offset\n", []),
        ('def f():\n    """Offsets of a row."""\n    return "Of a row"\n', []),
    ],
)
def test_comments_and_docstrings_begin_with_their_subject(
    tmp_path: Path, text: str, found: list[tuple[int, str]]
) -> None:
    (tmp_path / "a.py").write_text(text)
    begun = 'begins with its subject, not with "of"'
    assert list(without_subject(tmp_path, [Path("a.py")])) == [f"a.py:{line}: a {what} {begun}" for line, what in found]
