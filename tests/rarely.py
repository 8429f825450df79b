"""What `make test` leaves to `make test-long`, so that nobody waits for it too long.

A contract runs over one implementation of each kind in `make test` and over all of them in
`make test-long`; so do kills and faults of a kind, pages whose commands others run too, and
of each room what takes longest beside shorter tests of the same.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

_WHOLE = ("::",)
_KILLS = ("[before the write]", "[between commit and finish]")
_STEPS = (*_KILLS, "[2]", "[7]")
"""Of the acceptance kit: a batch is still killed between write and commit."""

RARELY = {
    "contract/test_acceptance_any_jdbc.py": _WHOLE,
    "contract/test_acceptance_datagen.py": _WHOLE,
    "contract/test_acceptance_delta.py": _KILLS,
    "contract/test_acceptance_delta_source.py": (*_STEPS, "TestChanges"),
    "contract/test_acceptance_file.py": ("TestJsonFiles", "TestJsonFolder", "[2]", "[7]"),
    "contract/test_acceptance_jdbc.py": _WHOLE,
    "contract/test_acceptance_mysql.py": _WHOLE,
    "contract/test_acceptance_mysql_source.py": _WHOLE,
    "contract/test_acceptance_postgres.py": _WHOLE,
    "contract/test_acceptance_postgres_source.py": _STEPS,
    "contract/test_acceptance_sql_sink.py": _WHOLE,
    "contract/test_acceptance_sqlite.py": _STEPS,
    "contract/test_store_silence.py": _WHOLE,
    "contract/test_table_commands.py": ("changes_are_replayed",),
    "contract/test_v1_callbacks.py": (
        "[tokens",
        "no_other_token",
        "who_waits",
    ),
    "contract/test_v1_description.py": ("test_no_answer_is_outside",),
    "docs/test_documents.py": (
        "[any-database-by-jdbc]",
        "[copy-databases]",
        "[handle-schema-changes]",
        "[headers-topics-and-times]",
        "[keep-secrets-out-of-configurations]",
        "[look-after-a-server]",
        "[manage-connectors-from-the-command-line]",
        "[move-a-connectors-offsets]",
        "[read-delta-tables]",
        "[topics]",
        "[use-converters]",
        "[verify-a-copy]",
        "[run-offline-jobs]",
        "[copy-files]",
        "[real-time-and-offline]",
        "[map-tables]",
        "[use-rocketmq-connect-clients]",
        "[get-alerts-about-jobs]",
        "[schedule-jobs-from-airflow]",
        "[change-and-route]",
        "[monitor-with-prometheus-and-grafana]",
        "[keep-connectors-in-git]",
    ),
    "docs/test_write_a_connector.py": _WHOLE,
    "e2e/test_change_kills.py": _WHOLE,
    "e2e/test_cli_run.py": (
        "source_is_away",
        "named_with_its_key",
        "of_a_growing_file",
        "on_a_screen",
    ),
    "e2e/test_database_kills.py": _WHOLE,
    "e2e/test_demo.py": (
        "can_be_run_again",
        "ctrl_c",
    ),
    "e2e/test_full_disk.py": _WHOLE,
    "e2e/test_job_alerts.py": _WHOLE,
    "e2e/test_job_kills.py": _WHOLE,
    "e2e/test_kill.py": ("through_a_topic",),
    "e2e/test_new_plugin.py": (
        "[capture]",
        "[predicate]",
        "[record-sink]",
        "[transform]",
    ),
    "e2e/test_postgres_changes.py": _WHOLE,
    "e2e/test_realtime_jobs.py": _WHOLE,
    "e2e/test_spark_deaths.py": _WHOLE,
    "faults/test_configuration_in_doubt.py": (
        "-False]",
        "[a sink added behind",
        "swapped",
        "[one sink replaced",
        "in another order",
    ),
    "faults/test_failing_disk.py": (
        "[no right-",
        "[input/output error-",
        "-read-only]",
        "delta tables",
        "sqlite-",
        "lines",
        "delta upsert",
    ),
    "faults/test_two_owners.py": (
        "[delta append+lines]",
        "[tolerant-",
        "[postgres]",
        "[delta upsert]",
        "[delta tables]",
        "[lines]",
        "[sqlite]",
        "[folder]",
    ),
    "faults/test_two_schedulers.py": (
        "[postgresql",
        "killed_again",
    ),
    "integration/acceptance/test_broken_captures.py": (
        "[LetsGo",
        "[Blocks",
    ),
    "integration/acceptance/test_broken_sinks.py": (
        "[TooPicky",
        "[ForgetsReceipts",
        "are_left_are_found",
    ),
    "integration/acceptance/test_broken_sources.py": (
        "[LeaksFiles",
        "[LeaksThreads",
        "[NeverRests",
        "[SeesTheStartOnly",
        "[StopsLate",
        "[NeverGetsThere",
    ),
    "integration/acceptance/test_stream_sources.py": (
        "[replay]",
        "[leaks]",
        "[until]",
    ),
    "integration/capture/test_crashes.py": (
        "[spread-4",
        "[batch-6",
    ),
    "integration/capture/test_two_owners.py": ("[4-batch]",),
    "integration/changes/test_binlog.py": (
        "[newest_mysql",
        "no_more_memory",
        "[mysql8]",
    ),
    "integration/changes/test_binlog_commits.py": (
        "while_its_rows_are_prepared",
        "read_again_is_not_older",
    ),
    "integration/changes/test_binlog_failover.py": _WHOLE,
    "integration/changes/test_binlog_mysql.py": (
        "gtids_come_into",
        "compressed_and_plain",
    ),
    "integration/changes/test_binlog_types.py": ("character_sets",),
    "integration/changes/test_failover.py": _WHOLE,
    "integration/changes/test_few_rows.py": _WHOLE,
    "integration/changes/test_log_examination.py": ("that_others_make",),
    "integration/changes/test_pauses.py": (
        "[MariaDB]",
        "that_was_not_begun",
        "asked_for_again",
    ),
    "integration/changes/test_processes.py": (
        "reads_ahead",
        "stands_still",
        "files_go_when",
        "takes_long_to_read",
    ),
    "integration/changes/test_replays.py": (
        "in_any_file_of_the_log",
        "several_times",
        "the_others_go_on",
    ),
    "integration/changes/test_slot_monitor.py": _WHOLE,
    "integration/changes/test_slots.py": (
        "shuts_down",
        "lost_changes",
        "any_name",
        "the_server_was_away",
        "was_set_back",
        "slot_was_lost",
        "another_server",
        "log_was_removed",
        "reset_offsets",
        "walsender",
        "does_not_move_at_once",
    ),
    "integration/changes/test_snapshots.py": (
        "[1-True]",
        "[2-True]",
        "or_doubled[1]",
        "no_row_without_a_key",
        "written_anew",
    ),
    "integration/changes/test_stored_apart.py": _WHOLE,
    "integration/changes/test_tables.py": (
        "may_change",
        "leaves_the_publication",
        "prepared",
        "made_anew",
        "takes_the_place",
        "while_the_source_is_away",
        "undone_before",
        "take_turns",
    ),
    "integration/changes/test_windows.py": ("windows_of_times",),
    "integration/databases/test_first_batches.py": (
        "recreated_table",
        "made_again_under",
        "another_stream",
    ),
    "integration/databases/test_jdbc_sink.py": (
        "[derby",
        "one_by_one",
        "versions_of_a_row",
        "soft_deletion",
        "decimal_grows",
        "of_equal_records",
        "a_replacement_leaves",
        "adds_twice",
        "in_capitals",
    ),
    "integration/databases/test_jdbc_source.py": ("[derby",),
    "integration/databases/test_postgres_sink.py": (
        "lose_digits",
        "decimal_grows",
    ),
    "integration/databases/test_source_times.py": ("clocks_that_are_off",),
    "integration/databases/test_type_matrix.py": (
        "[Delta]",
        "[PostgreSQL]",
        "[SQLite]",
    ),
    "integration/dataplane/test_wide_plans.py": (
        "grows_with_the_columns",
        "[columns]",
    ),
    "integration/file/test_json_documents.py": ("what_spark_compresses",),
    "integration/file/test_logrotate.py": ("[delayed]",),
    "integration/plugins/connectors/test_delta_append.py": (
        "[merged by Spark]",
        "[merged by",
        "[partitioned]",
    ),
    "integration/plugins/connectors/test_delta_source.py": (
        "several_parts",
        "are_mapped",
        "merge_is_read",
        "that_are_gone",
        "every_range_gives",
        "outside_of_the_table",
        "those_of_the_commits",
    ),
    "integration/plugins/connectors/test_delta_tables.py": ("TestSparkTables",),
    "integration/plugins/connectors/test_delta_upsert.py": (
        "[spark]",
        "merged_by_spark",
    ),
    "integration/spark/test_drivers.py": _WHOLE,
    "integration/spark/test_jars.py": _WHOLE,
    "integration/spark/test_kept.py": (
        "only_one_of_two",
        "died_meanwhile",
        "does_not_answer",
        "[driver]",
        "[0-False]",
    ),
    "integration/spark/test_session.py": (
        "go_with_it",
        "daemon_of_the_user",
        "by_sockets",
        "[15]",
        "does_not_fit_is_ignored",
        "can_be_closed",
    ),
    "integration/test_boundaries.py": (
        "[h2-",
        "[mariadb-",
        "[postgresql-",
    ),
    "integration/test_dead_letters.py": (
        "claimed_without_spark",
        "chain_rejects_in_a_replay",
        "to_that_sink_alone",
        "at_its_transaction",
        "that_is_gone_wait",
        "made_anew",
        "does_not_fit_is_dead",
    ),
    "integration/test_names_by_case.py": ("in_them_are_told_apart",),
    "integration/test_replaced_windows.py": (
        "by-day]",
        "by-note]",
        "[mariadb]",
        "[h2]",
        "[derby]",
        "[file divided]",
        "[delta by-spark",
        "[h2-",
        "[derby-",
        "[mariadb-",
        "-outside-",
        "side_by_side_do_not_touch_each_other[sqlite]",
        "side_by_side_do_not_touch_each_other[postgresql]",
        "side_by_side_do_not_touch_each_other[file parquet]",
        "-rows-DATE]",
        "is_told[delta plain]",
    ),
    "integration/test_restored_backup.py": ("[json]",),
    "integration/test_verification.py": (
        "300_000",
        "while_the_connector_runs",
        "of_a_topic_is_compared",
        "when_it_writes",
        "died_after_its_commit",
        "move_while",
        "with_one_key",
        "only_appended",
        "chain_rejects",
    ),
    "integration/test_verification_of_databases.py": (
        "[mariadb]",
        "[postgresql]",
        "leaves_out_only",
        "are_renamed",
    ),
    "integration/transforms/test_deduplicate.py": ("with_keys_of_the_batch",),
    "integration/transforms/test_lookup.py": ("all_workers_together",),
    "unit/topics/test_topic_upkeep.py": ("rewritten_a_few_times",),
    "unit/worker/test_reconciler_faults.py": ("[True]",),
}
"""For each file, what is in the names of the tests that `make test` passes over."""


def mark(items: list[pytest.Item]) -> set[tuple[str, str]]:
    """Mark what runs rarely as long; return the lines that name no test."""
    unused = {(file, part) for file, parts in RARELY.items() for part in parts}
    for item in items:
        name = item.nodeid.partition(".py")[2]
        file = item.path.relative_to(TESTS).as_posix()
        found = {(file, part) for part in RARELY.get(file, ()) if part in name}
        if found:
            item.add_marker("long")
        unused -= found
    return unused
