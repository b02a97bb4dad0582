"""What `make check` says about the tree: each promise broken once in a small tree of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tree import problems

FILES = {
    "wormhole/__init__.py": '"""Doc."""\n',
    "wormhole/py.typed": "",
    "wormhole/place.py": '__all__ = ["Place"]\n\n\nclass Place:\n    pass\n',
    "wormhole/_inner.py": "x = 1\n",
    "wormhole/wire_pb2.py": "y = 1\n",
    "docs/a.md": "[b](b.md#a-part) `wormhole/place.py: Place` [web](https://example.org/x)",
    "docs/b.md": "# A `part`\n\n[above](#a-part)\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_sound_tree_has_no_problems(tree: Path) -> None:
    assert problems(tree) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("wormhole/place.py", "class Place: ...\n", "no __all__"),
        ("wormhole/place.py", '__all__ = ["Place", "Other"]\nclass Place: ...\n', "names what is not there: Other"),
        ("wormhole/place.py", '__all__ = ["Place", "Place"]\nclass Place: ...\n', "twice"),
        ("wormhole/place.py", "names = []\n__all__ = names + ['Place']\nclass Place: ...\n", "not a plain list"),
        ("wormhole/__init__.py", "from wormhole.place import Place\n", "no __all__"),
        ("publisher/__init__.py", "", "publisher: no py.typed"),
        ("docs/a.md", "[b](c.md)", "leads nowhere"),
        ("docs/a.md", "[b](b.md#part)", "leads to no heading"),
        ("docs/a.md", "# Other\n\n[a](#part)", "leads to no heading"),
        ("docs/a.md", "`wormhole/none.py`", "is not there"),
        ("docs/a.md", "`wormhole/place.py: Absent`", "which does not have it"),
        ("docs/a.md", "`wormhole/place.py:12`", "lines move"),
        (
            "docs/a.md",
            f"| {'x' * 60} | {'y' * 60} |",
            "127 characters, at most 120: a table with such a row becomes a list",
        ),
        ("wormhole/_inner.py", "x = 1  # of a place\n", "a comment begins with its subject"),
        ("tests/test_a.py", '"""Of a place."""\n', "a docstring begins with its subject"),
        ("docs/pictures/a.svg", '<text class="folder" x="1">caravan</text>', "names the folder caravan"),
    ],
)
def test_each_broken_promise_is_named_with_its_file(tree: Path, name: str, text: str, expected: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (problem,) = problems(tree)
    assert expected in problem
    assert problem.startswith(name.partition("/__init__")[0])


def test_names_defined_under_a_condition_or_in_a_try_count(tree: Path) -> None:
    (tree / "wormhole" / "place.py").write_text(
        '__all__ = ["A", "B", "C"]\ntry:\n    import A\nexcept ImportError:\n    A = None\n'
        "if A:\n    B: int = 1\nelse:\n    from x import B\nC = D = 2\n"
    )
    (tree / "docs" / "a.md").write_text("")
    assert problems(tree) == []
