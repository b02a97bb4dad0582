from __future__ import annotations

import pytest

from scripts.quickstart import DATASTORES, PAGE, QuickstartError, main, missing, read_page

TEXT = """\
# A page

## 1. First

**MySQL, MariaDB**, as somebody:

```sql
SELECT 1;
```

For **all** of them.

```sh
one
two
```

## Prose only

Nothing.

## 2. Second

**Second terminal, RocksDB**: look.

```text
a ... c
```
"""


def test_what_is_where() -> None:
    first, second = read_page(TEXT)
    assert (first.title, second.title) == ("1. First", "2. Second")
    sql, sh = first.blocks
    assert (sql.language, sql.code, sql.only, sql.second) == (
        "sql",
        "SELECT 1;",
        frozenset({"MySQL", "MariaDB"}),
        False,
    )
    assert (sh.language, sh.code, sh.only, sh.second) == ("sh", "one\ntwo", frozenset(DATASTORES), False)
    (text,) = second.blocks
    assert (text.only, text.second) == (frozenset({"RocksDB"}), True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TEXT.replace("```sql", "```ruby"), "it is not known how to run ```ruby: SELECT 1;"),
        (TEXT.replace("```sql", "```"), "it is not known how to run"),
        ("```sh\nx\n```\n" + TEXT, "before the first heading"),
    ],
)
def test_nothing_that_could_be_run_is_passed_over(text: str, says: str) -> None:
    with pytest.raises(QuickstartError, match=says):
        read_page(text)


@pytest.mark.parametrize(
    ("shown", "printed", "line"),
    [
        ("b", "a\nabc\nd", ""),
        ("a\nd", "a\nabc\nd", ""),
        ("d\na", "a\nabc\nd", "a"),
        ("a\na", "a\nb", "a"),
        ("0 problems, ... note", "x\n0 problems, 3 notes", ""),
        ("0 problems, ... note", "10 problem, 3 notes", "0 problems, ... note"),
        ("(x)", "x", "(x)"),
        ("x", "", "x"),
        ("", "", ""),
    ],
)
def test_what_the_page_shows_and_was_not_printed(shown: str, printed: str, line: str) -> None:
    assert missing(shown, printed) == line


def test_every_datastore_has_something_to_do_in_every_step_but_the_account() -> None:
    install, account, *others = read_page(PAGE.read_text())
    assert not [block for block in account.blocks if "RocksDB" in block.only]
    for step in (install, *others):
        for kind in DATASTORES:
            assert [block for block in step.blocks if kind in block.only], step.title


def test_an_unknown_datastore_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["Oracle"])
    assert "choose among MySQL" in capsys.readouterr().err
