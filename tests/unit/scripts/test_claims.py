"""What a claim is, and when it is proved."""

from __future__ import annotations

from pathlib import Path

from scripts.claims import PAGE, claimed, missing, unproved

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
