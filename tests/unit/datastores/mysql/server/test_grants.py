"""What an account may SELECT from, and the doctor's findings about it."""

from __future__ import annotations

import pytest

from datastores.mysql.doctor.existing_rows import findings
from datastores.mysql.server.grants import SelectGrants, grant_for, parse_select_grants
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.findings import Severity

REPLICATION = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `w`@`%`"


def held(*lines: str, literal: bool = False, folds: bool = False) -> SelectGrants:
    return parse_select_grants((REPLICATION, *lines), literal=literal, folds=folds)


@pytest.mark.parametrize("what", ["SELECT", "REPLICATION SLAVE, SELECT, INSERT", "ALL PRIVILEGES"])
def test_on_everything(what: str) -> None:
    for end in ("", " WITH GRANT OPTION", " IDENTIFIED BY PASSWORD '*8C32'"):
        found = held(f"GRANT {what} ON *.* TO `w`@`%`{end}")
        assert found.lacking(["*", "*.*", "shop.*", "shop.users", "s*.users"]) == []


def test_on_nothing() -> None:
    found = held("GRANT `reader`@`%` TO `w`@`%`", "GRANT USAGE ON *.* TO `w`@`%`", "GRANT PROXY ON ``@`` TO `w`@`%`",
                 "GRANT EXECUTE ON PROCEDURE `s`.`p` TO `w`@`%`", "GRANT INSERT ON `shop`.* TO `w`@`%`")  # fmt: skip
    assert found.lacking(["*", "shop.*", "shop.users"]) == ["*", "shop.*", "shop.users"]
    assert str(found) == "nothing"


def test_on_a_database() -> None:
    found = held("GRANT SELECT ON `shop`.* TO `w`@`%`")
    assert found.lacking(["shop.*", "shop.u?", "shop.users"]) == []
    assert found.lacking(["*", "shop", "s*.*", "shops.*", "Shop.users"]) == [
        "*",
        "shop",
        "s*.*",
        "shops.*",
        "Shop.users",
    ]
    assert held("GRANT SELECT ON `shop`.* TO `w`@`%`", folds=True).lacking(["Shop.users"]) == []
    assert str(found) == "shop.*"


def test_databases_with_wildcards_and_escapes() -> None:
    found = held(r"GRANT SELECT ON `my\_shop`.* TO `w`@`%`", "GRANT SELECT ON `a_c`.* TO `w`@`%`",
                 r"GRANT SELECT ON `log%`.* TO `w`@`%`", r"GRANT SELECT ON `100\%`.* TO `w`@`%`")  # fmt: skip
    assert found.lacking(["my_shop.*", "abc.*", "a_c.t", "log.x", "logs2026.*", "100%.*"]) == []
    assert found.lacking(["myXshop.*", "ac.*", "alog.x", "1000.*"]) == ["myXshop.*", "ac.*", "alog.x", "1000.*"]


def test_of_several_patterns_the_most_exact_one_counts_alone() -> None:
    found = held("GRANT SELECT ON `shop%`.* TO `w`@`%`", "GRANT INSERT ON `shop1`.* TO `w`@`%`",
                 "GRANT INSERT ON `s%`.* TO `w`@`%`")  # fmt: skip
    assert found.lacking(["shop1.t", "shop2.t", "sale.t"]) == ["shop1.t", "sale.t"]


def test_with_partial_revokes_wildcards_are_themselves() -> None:
    lines = ("GRANT SELECT ON *.* TO `w`@`%`", "REVOKE SELECT ON `pay`.* FROM `w`@`%`")
    assert held(*lines, literal=True).lacking(["*", "shop.*", "pay.cards"]) == ["*", "pay.cards"]
    found = held("GRANT SELECT ON `a_c`.* TO `w`@`%`", literal=True)
    assert found.lacking(["abc.t", "a_c.t"]) == ["abc.t"]


def test_on_tables_and_columns() -> None:
    found = held(
        "GRANT SELECT, INSERT ON `shop`.`users` TO `w`@`%`",
        "GRANT SELECT (`a`, `b)`), UPDATE ON `shop`.`half` TO `w`@`%`",
        'GRANT SELECT ON TABLE "o`dd"."a b" TO "w"@"%"',
        "GRANT SELECT ON `x ON y`.`a``b` TO `w`@`%`",
    )
    assert found.lacking(["shop.users", "o`dd.a b", "x ON y.a`b"]) == []
    assert found.lacking(["shop.half", "shop.*", "shop.userz"]) == ["shop.half", "shop.*", "shop.userz"]
    assert found.columns == {("shop", "half")}


def test_the_grant_that_is_missing() -> None:
    assert grant_for("*") == grant_for("s*.t") == grant_for("a") == "*.*"
    assert grant_for("my_shop.order*") == r"`my\_shop`.*"
    assert grant_for("my_shop.*", literal=True) == "`my_shop`.*"
    assert grant_for("my_shop.a`b") == "`my_shop`.`a``b`"


def test_the_doctor_names_what_cannot_be_seen_and_the_grant() -> None:
    one = changed(MYSQL, grant_lines=("GRANT SELECT ON `shop`.`users` TO `w`@`%`",
                                      "GRANT SELECT (`a`) ON `shop`.`half` TO `w`@`%`"))  # fmt: skip
    (found,) = findings(one, ["shop.users", "shop.half", "shop.order*"])
    assert (found.check, found.severity) == ("existing_rows", Severity.PROBLEM)
    assert "shop.half" in found.what
    assert "some columns only" in found.what
    assert "GRANT SELECT ON `shop`.`half` TO" in found.next_step
    assert "GRANT SELECT ON `shop`.* TO" in found.next_step
    assert [one.severity for one in findings(one, ["shop.users"])] == [Severity.OK]
    (found,) = findings(one, ())
    assert (found.severity, "sees no other table" in found.what) == (Severity.OK, True)
    (found,) = findings(changed(MARIADB, grant_lines=(REPLICATION,)), ["*"])
    assert "GRANT SELECT ON *.* TO" in found.next_step
