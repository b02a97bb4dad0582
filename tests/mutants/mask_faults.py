"""The faults by which a hidden value would be sent; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_BUFFER = "tests/unit/caravan/test_buffer.py::test_what_is_hidden_is_in_no_body_and_equal_masks_share_one"
_TASKS = "tests/unit/spark_replay/replay/test_masked_tasks.py"
_LETTERS = "tests/unit/publisher/flows/test_dead_letters.py"
_FLOWS = "tests/integration/publisher/flows/test_masked_flows.py"
_PROMISE = "a value that an application's mask hides is in nothing that it is sent"

MASK_FAULTS: list[Fault] = [
    Fault(
        name="a-flow-in-the-middle-gets-what-is-hidden",
        file="caravan/buffer.py",
        old="            wanted.projection.project(run, rest),\n",
        new="            run,\n",
        tests=(_BUFFER,),
        promise=_PROMISE,
    ),
    Fault(
        name="a-replay-with-a-filter-sends-what-is-hidden",
        file="spark_replay/replay/pieces.py",
        old="        run = projection.project(run, kept)\n",
        new="",
        tests=(f"{_TASKS}::test_what_is_masked_live_is_masked_in_a_replay",),
        promise=_PROMISE,
    ),
    Fault(
        name="an-older-task-sends-what-is-hidden",
        file="publisher/flows/replays.py",
        old="    if flow.filter.projection and not projects:\n",
        new="    if False:\n",
        tests=(f"{_FLOWS}::test_a_task_of_a_replay_learns_what_it_may_send",),
        promise=_PROMISE,
    ),
    Fault(
        name="an-older-task-sends-what-is-hidden-meanwhile",
        file="publisher/flows/replays.py",
        old="            _check_projects(flow, projects=projects)  # again: the configuration may have changed\n",
        new="",
        tests=(f"{_FLOWS}::test_a_mask_that_comes_while_a_task_opens_the_flow_is_not_missed",),
        promise=_PROMISE,
    ),
    Fault(
        name="a-parked-update-shows-what-is-hidden-now",
        file="publisher/flows/dead_letters.py",
        old="        return projected(update, flow.filter.projection) if flow.filter.projection else parcel\n",
        new="        return parcel\n",
        tests=(f"{_LETTERS}::test_a_letter_goes_with_the_columns_that_its_application_receives_now",),
        promise=_PROMISE,
    ),
    Fault(
        name="a-mask-in-another-case-hides-nothing",
        file="wormhole/filters/projection.py",
        old='    return f"{table}.{column}".casefold()\n',
        new='    return f"{table}.{column}"\n',
        tests=(
            "tests/unit/wormhole/filters/test_projection.py::test_a_mask_leaves_a_hash_or_null_and_says_so_in_the_schema",
        ),
        promise=_PROMISE,
    ),
]
