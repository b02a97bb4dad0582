"""What the checks of the tree and of its documents count and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from scripts import wire_fields
from scripts.claims import PAGE, claimed, missing, unproved
from scripts.programs import write
from scripts.prose import bullet, documents, long_lines, without_subject
from scripts.statements import statements
from scripts.tree import problems

# --- claims: what a claim is, and when it is proved ---


PAGE_TEXT = (
    "a `tests/a/test_b.py::test_c`, again `tests/a/test_b.py::test_c` and `tests/a/test_b.py::test_d`; no `test_e`."
)
IDS = ["tests/a/test_b.py::test_c", "tests/a/test_b.py::test_d"]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_c[one]"/>
<testcase classname="tests.a.test_b" name="test_c[two]">{c}</testcase>
{d}
</testsuite></testsuites>"""
D = '<testcase classname="tests.a.test_b" name="test_d"/>'


def test_ids_in_backquotes_are_claims() -> None:
    assert claimed(PAGE_TEXT) == IDS


def test_a_test_that_is_gone_is_missed(tmp_path: Path) -> None:
    (tmp_path / "tests" / "a").mkdir(parents=True)
    (tmp_path / "tests" / "a" / "test_b.py").write_text("async def test_c(): ...\ndef helper(): ...\n")
    assert missing([*IDS, "tests/a/test_none.py::test_x"], tmp_path) == [IDS[1], "tests/a/test_none.py::test_x"]


def test_a_test_may_stand_in_a_class(tmp_path: Path) -> None:
    ids = claimed("`tests/test_k.py::TestK::test_in` and `tests/test_k.py::TestK::test_out`")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_k.py").write_text("class TestK:\n    def test_in(self): ...\ndef test_out(): ...\n")
    assert missing(ids, tmp_path) == [ids[1]]
    assert unproved(ids, '<t><testcase classname="tests.test_k.TestK" name="test_in[1]"/></t>') == {
        ids[1]: "did not run"
    }


def test_all_cases_have_to_run_and_pass() -> None:
    assert unproved(IDS, REPORT.format(c="", d=D)) == {}
    assert unproved(IDS, REPORT.format(c="", d="")) == {IDS[1]: "did not run"}
    assert unproved(IDS, REPORT.format(c='<skipped message="not root"/>', d=D)) == {IDS[0]: "skipped"}
    assert unproved(IDS, REPORT.format(c="<failure/>", d=D)) == {IDS[0]: "failure"}


def test_the_page_names_tests_that_exist() -> None:
    ids = claimed(PAGE.read_text())
    assert len(ids) >= 20
    assert missing(ids) == []


# --- prose ---


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


# --- programs: which programs of the documents mypy and pyright read ---


def test_every_program_with_the_sdk_has_a_file(tmp_path: Path) -> None:
    left_over = tmp_path / "programs" / "old.py"
    left_over.parent.mkdir()
    left_over.write_text("wrong")
    written = write(left_over.parent)
    assert sorted(left_over.parent.iterdir()) == sorted(written)
    pages = {path.stem.rpartition("_")[0] for path in written}
    assert {"readme", "subscriber", "tls"} <= pages
    assert "testing" not in pages
    assert all("subscriber_sdk" in path.read_text() for path in written)


# --- tree: what `make check` says about the tree: each promise broken once in a small tree of its own ---


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


# --- wire fields: field numbers are never reused ---


Field = descriptor_pb2.FieldDescriptorProto


def _with(*fields: tuple[str, int], reserved: int | None = None) -> descriptor_pb2.FileDescriptorSet:
    message = descriptor_pb2.DescriptorProto(name="M")
    for name, number in fields:
        message.field.add(name=name, number=number, type=Field.TYPE_UINT32, label=Field.LABEL_OPTIONAL)
    if reserved is not None:
        message.reserved_range.add(start=reserved, end=reserved + 1)
    return descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", message_type=[message])]
    )


def test_a_number_given_to_another_field_is_reported() -> None:
    (problem, *_) = wire_fields.problems(_with(("b", 1)), {"p.M.a = 1 uint32"})
    assert "p.M: a was number 1" in problem


def test_a_removed_field_must_be_reserved() -> None:
    remembered = {"p.M.a = 1 uint32", "p.M.b = 2 uint32"}
    assert wire_fields.problems(_with(("b", 2)), remembered)
    assert wire_fields.problems(_with(("b", 2), reserved=1), remembered) == []


def test_a_new_field_has_to_be_remembered() -> None:
    assert wire_fields.problems(_with(("a", 1), ("b", 2)), {"p.M.a = 1 uint32"}) == [
        "p.M.b = 2 uint32: not in proto/fields.txt; run make proto"
    ]


# --- statements: what counts as a statement ---


def test_docstrings_and_comments_do_not_count_and_every_nested_statement_does() -> None:
    source = (
        '"""A module."""\nclass A:\n    """A class."""\n    def f(self):\n        """A function."""\n        # '
        "nothing\n        if self:\n            return 1; pass\n"
    )
    assert statements(source) == 5
    assert statements("x = 'no docstring'\nasync def f():\n    'a docstring'\n    await g()\n") == 3
