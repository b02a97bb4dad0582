"""What a running publisher notices of tables: those that it could publish since now, and those that are refused."""

from __future__ import annotations

from dataclasses import replace

from datastores.postgres.table_watch import TableWatch
from datastores.postgres.tables.identities import Refusal, TableIdentity

USERS = TableIdentity("public", "users", "d", 1, 10, published=True, readable=True)
LEFT_OUT = replace(USERS, name="old", published=False)


def test_a_new_table_is_offered_once_and_what_was_left_out_is_not() -> None:
    watch = TableWatch("p")
    assert not watch.observe([USERS, LEFT_OUT])
    created = [USERS, LEFT_OUT, replace(LEFT_OUT, name="new"), replace(LEFT_OUT, name="k", would_refuse=Refusal.NO_KEY)]
    assert watch.observe(created).hint.splitlines()[1:] == ['ALTER PUBLICATION "p" ADD TABLE "public"."new";']
    assert not watch.observe(created)
    assert not watch.problem


def test_a_table_whose_writes_are_refused_since_now_is_a_problem_until_it_is_repaired() -> None:
    watch = TableWatch("p")
    watch.observe([replace(USERS, refusal=Refusal.NO_KEY)])
    assert watch.problem.hint.splitlines()[1:] == ['ALTER TABLE "public"."users" REPLICA IDENTITY FULL;']
    watch.observe([USERS])
    assert not watch.problem


def test_each_refused_table_has_its_own_reason_and_statement() -> None:
    watch = TableWatch("p")
    refused = {"a": Refusal.NO_KEY, "b": Refusal.COLUMN_LIST, "c": Refusal.NO_KEY, "d": Refusal.COLUMN_LIST}
    watch.observe([replace(USERS, name=name, refusal=reason) for name, reason in refused.items()])
    assert watch.problem.text.split("; ") == [
        f"the server refuses every UPDATE and DELETE of {names}: {reason.value}"
        for names, reason in (("public.a, public.c", Refusal.NO_KEY), ("public.b, public.d", Refusal.COLUMN_LIST))
    ]
    assert [line for line in watch.problem.hint.splitlines() if line.startswith("ALTER ")] == [
        'ALTER TABLE "public"."a" REPLICA IDENTITY FULL;',
        'ALTER TABLE "public"."c" REPLICA IDENTITY FULL;',
        'ALTER PUBLICATION "p" DROP TABLE "public"."b", "public"."d";',
        'ALTER PUBLICATION "p" ADD TABLE "public"."b", "public"."d";',
    ]
