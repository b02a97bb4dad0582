"""What `make test` leaves out and `make extended` runs: tests that cost more than a second or two of a core.

CI runs both at every push, so nothing is tested less. `make test` is what a developer waits for, so it keeps one test
of each promise, of each datastore and of each way to lose something. A new test of more than a second belongs here,
unless nothing else shows what it shows.

An entry is a file, or a test with all its parameters. Only a run of the whole suite leaves them out: what the command
line names, also by a folder, runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from scripts.prepare import ROOT

__all__ = ["EXTENDED", "is_whole"]

EXTENDED: Final = (
    # What one copy of a server knows and another one does not; peers' own cases.
    "tests/integration/publisher/test_balancers.py::test_a_balancer_that_cuts_idle_connections_does_not_cut_these",
    "tests/integration/publisher/test_balancers.py::test_a_cut_repeats_what_was_not_acknowledged_and_nothing_else",
    "tests/integration/publisher/test_balancers.py::test_a_subscriber_may_ping",
    "tests/integration/publisher/test_observed_tls.py",
    "tests/integration/publisher/test_balancers.py::test_both_sides_notice_within_three_heartbeats",
    "tests/integration/test_binlog_folder.py",
    "tests/integration/test_capture_order.py",
    "tests/integration/test_capture_statements.py",
    "tests/integration/test_mysql_histories.py",
    "tests/integration/test_mysql_servers.py",
    "tests/integration/test_peers_envelopes.py",
    "tests/integration/test_peers_failover.py",
    "tests/integration/test_peers_failures.py",
    "tests/integration/test_postgres_histories.py",
    "tests/integration/test_relay_repair.py",
    "tests/integration/test_several_behind_one_address.py",
    "tests/system/test_captured.py",
    "tests/system/test_failover_diverged.py",
    "tests/system/test_kill_nine.py::test_nothing_is_lost_when_subscribers_dial",
    "tests/system/test_go_client.py",
    "tests/system/test_hdfs.py",
    "tests/system/test_hdfs_failover.py",
    "tests/system/test_found_publishers.py",
    "tests/system/test_observed.py",
    "tests/system/test_owners.py::test_a_second_publisher_with_a_copy_of_the_state_folder_continues",
    "tests/system/test_owners.py::test_an_older_state_folder_is_put_back",
    "tests/system/test_postgres_catch_up.py",
    "tests/system/test_relay.py",
    "tests/system/test_rocksdb_disasters.py::test_a_full_disk_of_the_state_folder_stops_no_delivery_and_passes",
    "tests/system/test_server_replay.py",
    "tests/system/test_sink_mirror.py",
    # Every value, type, collation and form of statement, compared with what the server says.
    "tests/integration/test_mixed_tables.py",
    "tests/integration/test_mysql_differential.py",
    "tests/integration/test_mysql_existing_bounds.py",
    "tests/integration/test_odd_settings.py",
    "tests/integration/test_mysql_existing_keys.py",
    "tests/integration/test_mysql_existing_refused.py",
    "tests/integration/test_mysql_existing_rows.py",
    "tests/integration/test_mysql_existing_values.py",
    "tests/integration/test_mysql_rare.py",
    "tests/integration/test_mysql_statements.py",
    "tests/integration/test_sqlite_source.py::test_other_modes_give_the_same",
    "tests/integration/test_postgres_publication.py::test_what_a_handmade_publication_has_refused_is_foreseen",
    "tests/integration/test_random_ddl.py",
    "tests/integration/test_sink_partial_images.py",
    "tests/integration/test_sink_tables.py",
    "tests/contract/sinks/test_sql_others.py",
    "tests/integration/test_rocksdb_tables.py",
    "tests/integration/test_statements_without_rows.py",
    "tests/integration/test_value_filters.py",
    "tests/integration/test_verification.py",
    "tests/integration/test_webhook_command.py",
    "tests/property/test_backfill.py",
    "tests/property/test_redis_rows.py",
    "tests/unit/spark_replay/export/test_expiry.py",
    "tests/property/test_states_and_observers.py",
    "tests/unit/spark_replay/export/test_exporter.py",
    "tests/unit/spark_replay/test_selected.py::test_asked_of_files_and_rows_is_the_same_as_asked_of_everything",
    # Every case of the conformance kit, and every fault that it has to find.
    "tests/conformance/test_faults.py",
    # Damage at every place, kill -9 at every step, and growth.
    "tests/fuzz/test_fuzz_short.py",
    "tests/hostile/test_hostile_log.py",
    "tests/hostile/test_malicious_dialler.py::test_connections_without_a_call_are_bounded_in_number_and_time",
    "tests/hostile/test_postgres_impostor.py",
    "tests/integration/test_postgres_connection.py::test_a_proof_takes_no_setting",
    "tests/integration/test_postgres_source.py::test_slots_dropped_by_hand_are_made_as_the_message_says",
    "tests/integration/test_postgres_existing_rows.py::test_a_table_of_1600_texts",
    "tests/integration/test_postgres_existing_rows.py::test_no_setting_of_the_database_ends_or_changes_a_backfill",
    "tests/hostile/test_redaction.py::test_time_grows_with_the_length_alone",
    "tests/integration/test_rocksdb_source.py::test_recycled_files_are_copied",
    "tests/system/test_archive_bit_flips.py",
    "tests/system/test_archive_kill_nine.py",
    "tests/system/test_archive_week.py",
    "tests/system/test_baseline.py",
    "tests/system/test_connections.py",
    "tests/system/test_exactly_once.py::test_round_after_round",
    "tests/system/test_exactly_once.py::test_without_a_common_transaction_effects_happen_twice",
    "tests/system/test_exactly_once.py::test_a_connection_is_cut_at_any_message_of_a_commit",
    "tests/system/test_exactly_once.py::test_a_zombie_changes_nothing",
    "tests/system/test_exactly_once.py::test_a_pooler_that_gives_each_transaction_another_session",
    "tests/system/test_exactly_once.py::test_a_dead_letter_that_comes_twice_counts_once",
    "tests/system/test_exactly_once.py::test_a_table_made_by_the_handler_ends_the_transaction_and_halts",
    "tests/system/test_exactly_once.py::test_an_empty_target_halts_and_offers_a_backfill",
    "tests/system/test_exactly_once.py::test_an_older_copy_of_the_target_is_gone_on_from",
    "tests/system/test_exactly_once.py::test_a_target_of_another_history_is_refused",
    "tests/system/test_existing_rows_postgres.py",
    "tests/system/test_export_kill_nine.py",
    "tests/system/test_log_lines.py",
    "tests/system/test_memory.py",
    "tests/system/test_monitor.py",
    "tests/system/test_mysql_flips.py",
    "tests/system/test_kafka_broker_kills.py",
    "tests/system/test_nats_kill_nine.py",
    "tests/system/test_mysql_search.py",
    "tests/system/test_rocksdb_options.py",
    "tests/system/test_spark_deaths.py",
    "tests/system/test_torn_binlog.py",
    "tests/system/test_up.py::test_a_wrong_password_is_one_cause_everywhere",
    "tests/system/test_typescript_client.py",
    "tests/system/test_verify.py",
    "tests/unit/datastores/mysql/server/test_bounded_connection.py::test_a_source_survives_every_damaged_answer",
    "tests/unit/spark_replay/archive/test_checkpoints.py::test_a_file_is_listed_in_three_checkpoints_in_its_life",
    "tests/unit/spark_replay/archive/test_checkpoints.py::test_older_files_are_in_checkpoints",
    "tests/unit/spark_replay/archive/test_checkpoints.py::test_what_a_commit_writes_and_reads_does_not_grow",
    # The pages, word for word, and the examples.
    "tests/docs/test_existing_rows_page.py",
    "tests/docs/test_mysql_page.py",
    "tests/docs/test_postgres_page.py",
    "tests/docs/test_quickstart_page.py",
    "tests/docs/test_readme.py",
    "tests/docs/test_tls_page.py",
    "tests/integration/test_doctor_mysql.py",
    "tests/integration/test_example_packages.py",
    "tests/integration/test_init.py",
    "tests/integration/test_monitored_sinks.py",
    "tests/integration/test_sink_newcomer.py",
    "tests/integration/test_sink_rights.py::test_each_right_on_the_page_is_needed",
    "tests/system/test_sink_shares.py",
    "tests/integration/test_status_page.py",
    "tests/integration/test_tail_command.py",
    "tests/integration/test_typescript_client.py",
    "tests/system/test_command_line.py::test_the_page_word_for_word",
    "tests/system/test_demo.py",
    # What the tests, the benchmarks and the installation stand on.
    "tests/benchmarks/test_loads.py",
    "tests/contract/test_hdfs_log_source.py",
    "tests/contract/test_relayed_log_source.py",
    "tests/hostile/test_zookeeper_access.py",
    "tests/contract/test_private_server.py",
    "tests/integration/test_database_servers.py",
    "tests/contract/sinks/test_kafka.py",
    "tests/integration/test_hdfs_jvm.py",
    "tests/integration/test_kafka_security.py",
    "tests/integration/test_kafka_server.py",
    "tests/integration/test_kafka_sink.py",
    "tests/contract/sinks/test_nats.py",
    "tests/integration/test_nats_sink.py",
    "tests/integration/test_replay_jobs.py::test_the_last_changes_reach_a_handler_whose_effects_are_states",
    "tests/integration/test_redis_rows.py::test_the_server_s_language_does_not_change_the_order",
    "tests/integration/test_sink_servers.py",
    "tests/unit/examples/demo/test_demo.py::test_it_holds_what_was_committed_after_every_chore",
    "tests/unit/test_setup.py",
    "tests/unit/wormhole/coordination/test_apply_access.py::test_an_entry_that_is_closed_to_others_is_left_out_by_name",
    "tests/unit/wormhole/coordination/test_embedded_zookeeper.py",
)

_FILES: Final = frozenset(ROOT / entry for entry in EXTENDED if "::" not in entry)
_TESTS: Final = frozenset(entry for entry in EXTENDED if "::" in entry)


def is_whole(config: pytest.Config) -> bool:
    """Whether the suite is run, and nothing was named."""
    return bool(config.args == config.getini("testpaths"))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is missing."""
    return f"without {len(EXTENDED)} files and tests of `make extended`" if is_whole(config) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files."""
    return True if collection_path in _FILES and is_whole(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out single tests."""
    if is_whole(config):
        left_out = {item for item in items if item.nodeid.partition("[")[0] in _TESTS}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
