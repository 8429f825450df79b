"""Every metric of Headrace, with the Kafka Connect metrics that it replaces."""

from __future__ import annotations

from headrace.sdk.worker_plugins import Metric, MetricKind

_OF_CONNECTOR = ("connector",)
_OF_TASK = ("connector", "task")

BATCH_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, float("inf"))
"""Upper bounds of the buckets of batch times; each costs a series per task."""


def _counter(name: str, doc: str, *labels: str, **kafka: str) -> Metric:
    return _metric(MetricKind.COUNTER, name, doc, labels, kafka)


def _gauge(name: str, doc: str, *labels: str, **kafka: str) -> Metric:
    return _metric(MetricKind.GAUGE, name, doc, labels, kafka)


def _metric(
    kind: MetricKind, name: str, doc: str, labels: tuple[str, ...], kafka: dict[str, str]
) -> Metric:
    """Create a metric; Kafka's names have hyphens, which Python's keywords may not have."""
    meanings = {key.replace("_", "-"): value for key, value in kafka.items()}
    return Metric(name=f"headrace_{name}", kind=kind, help=doc, labels=labels, kafka=meanings)


CONNECTOR_INFO = _gauge(
    "connector_info",
    "Always 1; its labels describe the connector.",
    *_OF_CONNECTOR,
    "kind",
    "class",
    "version",
    connector_type="the label `kind`",
    connector_class="the label `class`",
    connector_version="the label `version`",
)
CONNECTOR_STATE = _gauge(
    "connector_state",
    "1 for the state that the connector is in, 0 for the others.",
    *_OF_CONNECTOR,
    "state",
    status="`headrace_connector_state == 1`, for a task `headrace_task_state == 1`",
)
CONNECTOR_TASKS = _gauge(
    "connector_tasks",
    "The number of the connector's tasks in a state.",
    *_OF_CONNECTOR,
    "state",
    connector_total_task_count="`sum by (connector) (headrace_connector_tasks)`",
    connector_running_task_count='`{state="RUNNING"}`',
    connector_paused_task_count='`{state="PAUSED"}`',
    connector_failed_task_count='`{state="FAILED"}`',
    connector_unassigned_task_count='`{state="UNASSIGNED"}`',
    connector_restarting_task_count='`{state="RESTARTING"}`',
)
TASK_STATE = _gauge(
    "task_state",
    "1 for the state that the task is in, 0 for the others.",
    *_OF_TASK,
    "state",
    running_ratio='`avg_over_time(headrace_task_state{state="RUNNING"}[5m])`',
    pause_ratio='`avg_over_time(headrace_task_state{state="PAUSED"}[5m])`',
)
RECORDS_READ = _counter(
    "task_records_read",
    "Records that the task has read from its source or its topics.",
    *_OF_TASK,
    source_record_poll_total="",
    source_record_poll_rate="`rate(headrace_task_records_read_total[5m])`",
    sink_record_read_total="",
    sink_record_read_rate="`rate(headrace_task_records_read_total[5m])`",
)
RECORDS_WRITTEN = _counter(
    "task_records_written",
    "Records that are durable in every target of the task.",
    *_OF_TASK,
    source_record_write_total="",
    source_record_write_rate="`rate(headrace_task_records_written_total[5m])`",
    sink_record_send_total="",
    sink_record_send_rate="`rate(headrace_task_records_written_total[5m])`",
)
RECORDS_FILTERED = _counter(
    "task_records_filtered",
    "Records that a transform dropped on purpose.",
    *_OF_TASK,
    "transform",
)
RECORDS_REJECTED = _counter(
    "task_records_rejected",
    "Records that failed and were skipped, as errors.tolerance allows.",
    *_OF_TASK,
    total_records_skipped="",
)
RECORD_ERRORS = _counter(
    "task_record_errors",
    "Records that failed, by the stage that failed them.",
    *_OF_TASK,
    "stage",
    total_record_errors="`sum without (stage) (headrace_task_record_errors_total)`",
    total_record_failures="the same, as a record is tried once in each batch",
)
DEAD_LETTERS = _counter(
    "task_dead_letters",
    "Records that went to the dead-letter topic; if one cannot be written, the batch is not "
    "committed.",
    *_OF_TASK,
    deadletterqueue_produce_requests="",
)
BYTES = _counter(
    "task_bytes",
    "Bytes of input if the source knows them, otherwise of output.",
    *_OF_TASK,
)
BATCH_TIME = _metric(
    MetricKind.HISTOGRAM,
    "task_batch_seconds",
    "The time of batches, from the search for data until they were durable and committed.",
    _OF_TASK,
    {
        "put-batch-avg-time-ms": "`rate(headrace_task_batch_seconds_sum[5m]) / "
        "rate(headrace_task_batch_seconds_count[5m])`",
        "put-batch-max-time-ms": "`histogram_quantile(1, "
        "rate(headrace_task_batch_seconds_bucket[5m]))`",
        "poll-batch-avg-time-ms": "as `put-batch-avg-time-ms`",
        "poll-batch-max-time-ms": "as `put-batch-max-time-ms`",
    },
)
BATCH_RECORDS = _gauge(
    "task_batch_records",
    "The number of records that the newest batch read.",
    *_OF_TASK,
    batch_size_max="`max_over_time(headrace_task_batch_records[5m])`",
    batch_size_avg="`rate(headrace_task_records_read_total[5m]) / "
    "rate(headrace_task_batch_seconds_count[5m])`",
)
COMMIT_TIME = _metric(
    MetricKind.SUMMARY,
    "task_commit_seconds",
    "The time to store the position and the counts of durable batches.",
    _OF_TASK,
    {
        "offset-commit-avg-time-ms": "`rate(headrace_task_commit_seconds_sum[5m]) / "
        "rate(headrace_task_commit_seconds_count[5m])`",
        "offset-commit-completion-total": "`headrace_task_commit_seconds_count`",
        "offset-commit-completion-rate": "`rate(headrace_task_commit_seconds_count[5m])`",
    },
)
LAST_COMMIT = _gauge(
    "task_last_commit_timestamp_seconds",
    "When the task last finished a batch, in seconds since 1970.",
    *_OF_TASK,
)
LAG_RECORDS = _gauge(
    "task_lag_records",
    "Records that waited for the task when its newest batch began; 0 when it found none.",
    *_OF_TASK,
    sink_record_lag_max="`max by (connector, task) (headrace_task_lag_records)`",
)
LAG_BYTES = _gauge(
    "task_lag_bytes",
    "Bytes that waited for the task when its newest batch began; 0 when it found none.",
    *_OF_TASK,
)
LAG_SECONDS = _gauge(
    "task_lag_seconds",
    "The age of the oldest change that waits for the task, if its source reports it.",
    *_OF_TASK,
)
RETAINED_BYTES = _gauge(
    "task_source_retained_bytes",
    "Bytes of its log that the source retains for the task, such as by a replication slot.",
    *_OF_TASK,
)
RETRIES = _counter(
    "task_retries",
    "Steps that failed temporarily and were retried.",
    *_OF_TASK,
    total_retries="",
)
FAILURES = _counter(
    "task_failures",
    "The number of times that the task became FAILED.",
    *_OF_TASK,
)
RESTARTS = _counter(
    "task_restarts",
    "The number of restarts of the task in this process, for any reason.",
    *_OF_TASK,
)
LAST_ERROR = _gauge(
    "task_last_error_timestamp_seconds",
    "When a record, a step or the whole task last failed, in seconds since 1970.",
    *_OF_TASK,
    last_error_timestamp="in milliseconds there",
)
WORKER_INFO = _gauge(
    "worker_info",
    "Always 1; its labels describe the worker.",
    "worker",
    "version",
)
WORKER_START = _gauge(
    "worker_start_timestamp_seconds", "When the worker was started, in seconds since 1970."
)
WORKER_CONNECTORS = _gauge(
    "worker_connectors", "The number of connectors that the worker runs.", connector_count=""
)
WORKER_TASKS = _gauge("worker_tasks", "The number of the worker's tasks.", task_count="")
CONNECTOR_STARTUPS = _counter(
    "worker_connector_startups",
    "Connectors that the worker tried to start, by outcome.",
    "outcome",
    connector_startup_attempts_total="`sum(headrace_worker_connector_startups_total)`",
    connector_startup_success_total='`{outcome="success"}`',
    connector_startup_failure_total='`{outcome="failure"}`',
    connector_startup_success_percentage="the one divided by the other",
    connector_startup_failure_percentage="the same",
)
TASK_STARTUPS = _counter(
    "worker_task_startups",
    "Tasks that the worker tried to start, by outcome.",
    "outcome",
    task_startup_attempts_total="`sum(headrace_worker_task_startups_total)`",
    task_startup_success_total='`{outcome="success"}`',
    task_startup_failure_total='`{outcome="failure"}`',
    task_startup_success_percentage="the one divided by the other",
    task_startup_failure_percentage="the same",
)
REPORTER_FAILURES = _counter(
    "worker_reporter_failures",
    "Calls of a reporter that raised an error.",
    "reporter",
)
ALERTS = _counter(
    "job_alerts",
    "Alerts about jobs that this server has created, by kind.",
    "kind",
)
ALERT_FAILURES = _counter(
    "alert_channel_failures",
    "Attempts to send an alert that failed, by channel.",
    "channel",
)
PROCESSES = _gauge(
    "worker_processes",
    "Processes of this server by kind: driver, jvm, host (of captures), python (Spark's "
    "workers).",
    "process",
)
MEMORY_RSS = _gauge(
    "worker_memory_rss_bytes",
    "Memory of these processes; shared memory is counted for each process.",
    "process",
)
MEMORY_PSS = _gauge(
    "worker_memory_pss_bytes",
    "Memory of these processes, with shared memory divided among them; on Linux only.",
    "process",
)
CPU_TIME = _counter(
    "worker_cpu_seconds",
    "CPU time of these processes, including ended processes.",
    "process",
)
JVM_MEMORY_USED = _gauge("jvm_memory_used_bytes", "The used memory of an area.", "area")
JVM_MEMORY_COMMITTED = _gauge(
    "jvm_memory_committed_bytes", "The committed memory of an area.", "area"
)
JVM_MEMORY_MAX = _gauge("jvm_memory_max_bytes", "The maximum memory of an area.", "area")
JVM_GC_COUNT = _counter("jvm_gc_collections", "Garbage collections.", "gc")
JVM_GC_TIME = _counter("jvm_gc_seconds", "Time spent in garbage collections.", "gc")
SPARK_JOBS = _gauge("spark_jobs_running", "The number of running Spark jobs.")
SAMPLED = _gauge(
    "worker_sampled_timestamp_seconds",
    "When processes, JVM and Spark were last sampled for the metrics above, in seconds since "
    "1970; a scrape does not sample them.",
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All metrics, in the order of display."""
STARTUPS = ("success", "failure")
