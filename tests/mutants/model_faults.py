"""The faults of schemas and typed rows; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_SCHEMAS = "tests/unit/subscriber_sdk/work/test_schemas.py"
_MODELS = "tests/unit/subscriber_sdk/test_models.py"

MODEL_FAULTS: list[Fault] = [
    Fault(
        name="a-rollback-forgets-the-schemas",
        file="subscriber_sdk/work/flow_worker.py",
        old="            self._schemas.rolled_back()\n",
        new="            pass\n",
        tests=(f"{_SCHEMAS}::test_after_a_rollback_it_comes_again_with_its_updates",),
        promise="on_schema comes again with the updates that a rollback repeats",
    ),
    Fault(
        name="a-changed-schema-overtakes-handlers",
        file="subscriber_sdk/work/parallel.py",
        old="keys = None if isinstance(step, SchemaChange)",
        new="keys = () if isinstance(step, SchemaChange)",
        tests=(f"{_SCHEMAS}::test_nothing_runs_beside_it",),
        promise="on_schema waits for earlier updates, and later ones for it",
    ),
    Fault(
        name="a-row-without-its-values-is-a-deleted-one",
        file="subscriber_sdk/models.py",
        old="    if update.too_large:\n",
        new="    if False:\n",
        tests=(f"{_MODELS}::test_values_that_were_left_out_are_no_deletion",),
        promise="a row whose values were left out is not taken for a deleted one",
    ),
    Fault(
        name="a-rows-values-in-the-log",
        file="subscriber_sdk/models.py",
        old="        raise _mismatch(update, model, what, hint) from None\n\n\n@lru_cache",
        new="        raise _mismatch(update, model, what, hint) from error\n\n\n@lru_cache",
        tests=(f"{_MODELS}::test_a_row_that_does_not_fit_names_the_columns_and_none_of_its_values",),
        promise="a row that fits no model puts none of its values into a log",
    ),
    Fault(
        name="a-name-of-a-database-becomes-code",
        file="wormholectl/models/texts.py",
        old="if text.isprintable() and not {",
        new="if True or not {",
        tests=("tests/unit/wormholectl/models/test_commands.py::test_no_name_of_a_database_becomes_code",),
        promise="no name of a database becomes code",
    ),
]
