"""What a running publisher notices of tables: those that it could publish since now, and those that are refused."""

from __future__ import annotations

from dataclasses import replace

from publisher.sources.postgres.table_identities import Refusal, TableIdentity
from publisher.sources.postgres.table_watch import TableWatch

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
