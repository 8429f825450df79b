"""What `make test` leaves to `make test-long`, so that it ends within its time.

A contract runs over one implementation of each kind in `make test` and over all of them in
`make test-long`; so do kills of the same kind, and pages whose commands others run too.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

_WHOLE = ("::",)
_STEPS = ("[before the write]", "[between commit and finish]", "[2]", "[7]")
"""Of the acceptance kit: a batch is still killed between write and commit."""

RARELY = {
    "contract/test_acceptance_any_jdbc.py": _WHOLE,
    "contract/test_acceptance_delta.py": _STEPS,
    "contract/test_acceptance_delta_source.py": _STEPS,
    "contract/test_acceptance_mysql.py": _WHOLE,
    "contract/test_acceptance_mysql_source.py": _STEPS,
    "contract/test_acceptance_postgres.py": _WHOLE,
    "contract/test_acceptance_postgres_source.py": _STEPS,
    "contract/test_acceptance_sqlite.py": _STEPS,
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
    ),
    "e2e/test_change_kills.py": ("[mariadb]",),
    "e2e/test_cli_run.py": ("source_is_away", "of_a_growing_file", "on_a_screen"),
    "e2e/test_database_kills.py": _WHOLE,
    "e2e/test_demo.py": ("can_be_run_again",),
    "e2e/test_full_disk.py": ("[topics]",),
    "e2e/test_job_alerts.py": _WHOLE,
    "e2e/test_kill.py": ("through_a_topic",),
    "e2e/test_new_plugin.py": ("[capture]", "[predicate]", "[record-sink]", "[transform]"),
    "e2e/test_postgres_changes.py": ("in_another_database",),
    "e2e/test_realtime_jobs.py": ("changes_of_a_database",),
    "e2e/test_spark_deaths.py": ("ends_too_often", "a_run_goes_on"),
    "faults/test_configuration_in_doubt.py": ("-False]",),
    "faults/test_failing_disk.py": ("[no right-", "[input/output error-", "-read-only]"),
    "faults/test_two_owners.py": ("[delta append+lines]", "[tolerant-"),
    "faults/test_two_schedulers.py": ("[postgresql",),
    "integration/acceptance/test_broken_captures.py": ("[LetsGo", "[Blocks"),
    "integration/acceptance/test_broken_sources.py": ("[LeaksThreads", "[NeverRests"),
    "integration/changes/test_binlog_failover.py": _WHOLE,
    "integration/changes/test_failover.py": ("[17", "is_told_of", "goes_on_at_the_standby"),
    "integration/changes/test_few_rows.py": ("by_spark", "past_spark"),
    "integration/changes/test_pauses.py": ("[MariaDB]",),
    "integration/changes/test_processes.py": ("reads_ahead", "stands_still"),
    "integration/changes/test_replays.py": (
        "in_any_file_of_the_log",
        "several_times",
        "the_others_go_on",
    ),
    "integration/changes/test_slot_monitor.py": _WHOLE,
    "integration/changes/test_slots.py": ("shuts_down", "lost_changes", "any_name"),
    "integration/changes/test_snapshots.py": ("[1-True]", "[2-True]", "or_doubled[1]"),
    "integration/changes/test_stored_apart.py": _WHOLE,
    "integration/changes/test_tables.py": ("may_change", "leaves_the_publication"),
    "integration/databases/test_jdbc_sink.py": ("[derby",),
    "integration/databases/test_jdbc_source.py": ("[derby",),
    "integration/databases/test_source_times.py": ("clocks_that_are_off",),
    "integration/databases/test_type_matrix.py": ("[Delta]", "[PostgreSQL]", "[SQLite]"),
    "integration/plugins/connectors/test_delta_append.py": ("[merged by Spark]",),
    "integration/plugins/connectors/test_delta_source.py": ("several_parts", "are_mapped"),
    "integration/plugins/connectors/test_delta_upsert.py": ("[spark]",),
    "integration/spark/test_drivers.py": _WHOLE,
    "integration/spark/test_jars.py": _WHOLE,
    "integration/spark/test_session.py": ("go_with_it", "daemon_of_the_user", "by_sockets"),
    "integration/test_boundaries.py": ("[h2-",),
    "integration/test_dead_letters.py": ("claimed_without_spark",),
    "integration/test_replaced_windows.py": (
        "by-day]",
        "by-note]",
        "[mariadb]",
        "[h2]",
        "[derby]",
        "[file divided]",
    ),
    "integration/test_verification.py": ("300_000", "while_the_connector_runs"),
    "integration/test_verification_of_databases.py": ("[mariadb]", "[postgresql]"),
    "integration/transforms/test_lookup.py": ("all_workers_together",),
    "unit/worker/test_reconciler_faults.py": ("[True]",),
}
"""For each file, what is in the names of the tests that `make test` passes over."""


def mark(items: list[pytest.Item]) -> None:
    """Mark what runs rarely as long."""
    for item in items:
        name = item.nodeid.partition(".py")[2]
        file = item.path.relative_to(TESTS).as_posix()
        if any(part in name for part in RARELY.get(file, ())):
            item.add_marker("long")
