"""The quickstart, followed to the letter with one of its datastores, in a soak with three; `make quickstart-test` does
it with all."""

from __future__ import annotations

import pytest

from scripts.quickstart import PAGE, QuickstartError, follow, read_page

SERVERS = {"MariaDB": "mariadb_server", "PostgreSQL": "postgres_server"}


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=pytest.mark.soak) for kind in SERVERS), "RocksDB"])
def test_it_leads_to_a_running_subscriber(kind: str, request: pytest.FixtureRequest) -> None:
    if kind in SERVERS:
        request.getfixturevalue(SERVERS[kind])  # skips where there is none
    _install, *steps = read_page(PAGE.read_text())
    assert list(follow(kind, steps)) == [step.title for step in steps]


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("```sh\nwormholectl dance\n```", r"RocksDB, 1\. Try: wormholectl dance\nended with 2"),
        ("```sh\necho one\n```\n\n```text\ntwo\n```", r"the page shows 'two', but printed was:\none"),
        ("**Second terminal**\n\n```sh\necho one\n```\n\n**Second terminal**\n\n```text\ntwo\n```", "without saying 'two'"),  # noqa: E501
        ("**Second terminal**\n\n```text\ntwo\n```", "nothing runs in the second terminal"),
        ("```sql\nSELECT 1\n```", "understands no SQL"),
        ("```sh\nsleep 1000 >/dev/null 2>&1 &\n```", r"still running after the last step: sleep 1000"),
    ],
)  # fmt: skip
def test_a_page_that_is_wrong_is_reported_with_the_step_and_nothing_stays(block: str, says: str) -> None:
    with pytest.raises(QuickstartError, match=says):
        follow("RocksDB", read_page(f"## 1. Try\n\n{block}\n"))
