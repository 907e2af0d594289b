"""Which tests each of the three commands runs: a plugin of pytest that marks them `slow` and `thorough`.

| command | runs |
|---|---|
| `make check` | the tests of `tests/unit` that are neither slow nor thorough, and start no Spark |
| `make test` | all that is not thorough: each promise, on the newest version of each broker |
| `make test-all` | every row of every test, on every version |
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from support.brokers.activemq.broker import CLASSIC
from support.brokers.rabbitmq.fixtures import VERSIONS as RABBITMQ
from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ

OTHER = {*RABBITMQ[:-1], *CLASSIC[:-1], *ROCKETMQ[1:], "mariadb"}
"""Versions of brokers that have a newer one, and the second of the ledger's databases."""

QUICK = (
    "tests/services/rabbitmq/test_lossless.py",
    "tests/services/rabbitmq/test_reading.py::TestRabbitMQ",
    "tests/services/rabbitmq/test_reading.py::test_while_letters_that_are_alike",
    "tests/services/rabbitmq/test_sending_contract.py",
    "tests/services/rabbitmq/test_amqp10.py::test_what_is_read_by_1_0_is_exactly_what_closes_0_9_1_connections",
    "tests/services/rabbitmq/test_errors.py",
    "tests/services/rabbitmq/test_faults.py::test_a_pull_goes_on_after_its_broker_was_killed",
    "tests/services/rabbitmq/test_publishing.py::test_a_letter_arrives_byte_for_byte_but_for_what_is_stripped",
    "tests/services/rabbitmq/test_publishing.py::test_confirmed_returned_and_refused_are_told_apart_in_one_window",
    "tests/services/rabbitmq/test_publishing.py::test_letters_for_two_queues_keep_their_keys",
    "tests/services/rabbitmq/test_queue_effects.py::test_a_queue_that_goes_with_its_last_consumer_is_left_alone",
    "tests/services/rabbitmq/test_queue_effects.py::test_what_is_given_back_is_marked_and_keeps_its_order",
    "tests/services/rabbitmq/test_witness.py",
    "tests/e2e/test_replay_rabbitmq.py::test_a_consumer_sees_the_key_that_it_saw",
    "tests/e2e/test_replay_rabbitmq.py::test_kill_minus_nine_in_mid_apply_is_resolved_by_the_witness",
    "tests/e2e/test_replay_rabbitmq.py::test_letters_go_back_to_the_queue_where_they_died_once",
    "tests/services/activemq/test_kills.py::test_a_broker_killed_in_mid_replay_leaves_nothing_unknown",
    "tests/services/activemq/test_kills.py::test_a_pull_killed_in_mid_drain_loses_and_doubles_nothing",
    "tests/services/activemq/test_artemis_amqp10.py::test_each_kind_of_message_is_archived_once",
    "tests/services/activemq/test_openwire.py::test_java_gets_back_what_java_sent_types_and_all",
    "tests/services/activemq/test_proof.py",
    "tests/services/activemq/test_queue_effects.py::test_letters_that_a_drain_does_not_remove_are_known",
    "tests/services/activemq/test_reading.py",
    "tests/services/activemq/test_replay.py",
    "tests/services/activemq/test_sending_contract.py",
    "tests/services/rocketmq/test_contract.py",
    "tests/services/rocketmq/test_faults.py::test_a_broker_killed_in_mid_pull",
    "tests/services/rocketmq/test_faults.py::test_replays_cut_by_a_kill",
    "tests/services/rocketmq/test_reading.py",
    "tests/services/rocketmq/test_replay.py",
    "tests/services/rocketmq/test_transactions.py",
    "tests/services/kafka/test_access.py::test_nothing_goes_to_an_address_that_the_configuration_keeps_out",
    "tests/services/kafka/test_contract.py",
    "tests/services/kafka/test_faults.py::test_a_node_that_stops_in_the_middle_of_a_send",
    "tests/services/kafka/test_reading.py",
    "tests/services/kafka/test_replay.py",
    "tests/services/kafka/test_superseded.py",
    "tests/services/coverage/test_artemis.py::test_a_handful",
    "tests/services/coverage/test_classic.py::test_a_handful",
    "tests/services/coverage/test_kafka.py::test_a_handful",
    "tests/services/coverage/test_rabbitmq.py::test_a_handful",
    "tests/services/coverage/test_rocketmq.py::test_a_handful",
    "tests/services/rehearsal/test_rabbitmq.py::test_a_right",
    "tests/services/rehearsal/test_rabbitmq.py::test_precision",
    "tests/services/test_in_order.py::test_rabbitmq",
    "tests/services/test_killed_apply.py",
    "tests/services/ledger/test_servers.py",
    "tests/services/s3/test_archive.py",
    "tests/services/web/test_pages_in_chromium.py::test_hostile_letters_run_and_load_nothing",
    "tests/services/web/test_pages_in_chromium.py::test_the_whole_way_by_keyboard_alone",
    "tests/services/web/test_two_servers.py",
    "tests/e2e/test_container.py::test_a_pod_runs",
    "tests/e2e/test_container.py::test_an_image_belongs",
    "tests/e2e/test_container.py::test_kubernetes_accepts",
    "tests/e2e/test_container.py::test_the_network_policy",
    "tests/e2e/test_hostile_brokers.py::test_a_kafka_that_ends_the_client_library_loses_nothing",
    "tests/e2e/test_interchange.py",
    "tests/e2e/test_mistakes.py",
    "tests/e2e/test_serve.py::test_a_server_that_is_killed_at_any_moment_of_an_apply",
    "tests/e2e/test_serve.py::test_no_token_stands_in_the_log",
    "tests/e2e/test_tampering.py::test_verify_names_a_segment_whose_columns_are_not_what_they_were",
    "tests/e2e/test_terminal.py",
    "tests/e2e/test_tutorial.py",
    "tests/frameworks",
    "tests/unit",
)
"""Beginnings of the names of the tests that `make test` runs."""

SLOW = (
    "tests/unit/analyzers/spark", "tests/unit/analyzers/test_hostile_texts.py",
    "tests/unit/analyzers/test_many_alike.py", "tests/unit/analyzers/test_shapes.py",
    "tests/unit/archive/test_bounded_files.py", "tests/unit/archive/test_brief.py",
    "tests/unit/archive/test_files.py", "tests/unit/archive/test_hostile_s3.py",
    "tests/unit/archive/test_odd_documents.py", "tests/unit/archive/test_views.py",
    "tests/unit/cli/commands/test_dismiss.py", "tests/unit/cli/commands/test_export.py",
    "tests/unit/cli/commands/test_failures.py", "tests/unit/cli/run",
    "tests/unit/cli/test_hostile_letters.py", "tests/unit/cli/test_memory.py",
    "tests/unit/cli/test_selecting.py", "tests/unit/cli/test_views_of_letters.py",
    "tests/unit/connectors/test_hostile.py", "tests/unit/connectors/test_outbound.py::test_a_process_that",
    "tests/unit/connectors/test_tls.py::test_kafka", "tests/unit/operations",
    "tests/unit/replay/test_apply_together.py", "tests/unit/replay/test_bound_content.py",
    "tests/unit/replay/test_hostile_ledger.py", "tests/unit/replay/test_model.py",
    "tests/unit/replay/test_ramp.py", "tests/unit/replay/test_superseded.py",
    "tests/unit/reports/test_incidents.py", "tests/unit/reports/test_metrics.py::test_why_a_collector",
    "tests/unit/reports/test_rendering.py",
    "tests/unit/reports/test_report.py", "tests/unit/reports/test_sample.py", "tests/unit/test_costs.py",
    "tests/unit/test_killed_anywhere.py", "tests/unit/test_scheduling.py", "tests/unit/web",
)  # fmt: skip
"""Beginnings of the names of the tests of `tests/unit` that `make check` leaves to `make test`."""

THOROUGH = tuple(
    f"tests/unit/{file}::test_{name}"
    for file, names in {
        "archive/test_brief.py": "the_newest_are what_an_analysis",
        "cli/commands/test_failures.py": (
            "a_report_shows a_snoozed_failure_raises new_failures_are no_failure two_processes"
        ),
        "cli/test_selecting.py": "a_report_of_a_selection_holds",
        "test_alarms.py": "prometheus_takes",
        "test_killed_anywhere.py": "a_move",
        "operations/test_in_order.py": ("a_new_plan a_newer growing_waves versions_are_no without_a_key"),
        "operations/test_looking.py": "the_audit what_a_run_left",
        "operations/test_what_goes_along.py": "an_import_changes facts_of_a_file",
        "web/test_look.py": "pages_come_while what_the_ledger_says",
        "web/test_pages.py": "a_failure_says_in news_of what_was_done",
        "web/test_proposals.py": "two_who what_somebody_has_done",
    }.items()
    for name in names.split()
)
"""Beginnings of the names of tests that take long for what others of `make test` do not say."""

EVERY = {
    "tests/e2e/test_interchange.py::test_a_letter_under_two_sources": 0,
    "tests/e2e/test_interchange.py::test_letters_that_lie_under_two_sources": 0,
    "tests/e2e/test_terminal.py::test_nothing_in_a_letter_steers_the_terminal": 3,
    "tests/e2e/test_terminal.py::test_who_wants_no_colour": 3,
    "tests/services/activemq/test_kills.py::test_a_broker_killed_in_mid_replay": 2,
    "tests/services/activemq/test_proof.py::test_a_classic_broker_that_gives_every_message_a_time": 0,
    "tests/services/activemq/test_replay.py::test_a_broker_that_allows_one_connection": 0,
    "tests/services/rabbitmq/test_faults.py::test_a_pull_goes_on_after_its_broker_was_killed[quorum": 0,
    "tests/services/rabbitmq/test_witness.py::test_a_witness_loses_its_anchor_with_its_node": 0,
    "tests/services/rabbitmq/test_witness.py::test_a_witness_that_has_lost_something": 2,
    "tests/services/rocketmq/test_transactions.py::test_a_transaction_that_ended_where": 0,
    "tests/services/rocketmq/test_transactions.py::test_half_messages_that_lie_in_rocksdb": 0,
    "tests/services/s3/test_archive.py::test_what_is_compacted_while_somebody_looks": 3,
    "tests/services/test_killed_apply.py::test_activemq_gets_each_letter_once[as fast": 0,
    "tests/services/test_killed_apply.py::test_kafka_gets_each_letter_once[4.4.0-as fast": 0,
    "tests/services/test_killed_apply.py::test_rocketmq_gets_each_letter_once[5.5.0-as fast": 0,
    "tests/services/s3/test_archive.py::test_a_cluster": 0,
    "tests/unit/analyzers/spark/test_adding_a_relation.py": 0,
    "tests/unit/analyzers/spark/test_further.py": 8,
    "tests/unit/analyzers/spark/test_left_by_spark.py::test_java_leaves_no_report": 0,
    "tests/unit/analyzers/spark/test_left_by_spark.py::test_a_host_that_cannot": 0,
    "tests/unit/analyzers/spark/test_left_by_spark.py::test_what_java_says": 0,
    "tests/unit/analyzers/spark/test_stopped.py": 0,
    "tests/unit/analyzers/test_hostile_texts.py::test_no_pattern_runs_away[exceptions._OF_NETWORKS.0": 0,
    "tests/unit/analyzers/test_hostile_texts.py": 10,
    "tests/unit/archive/retention/test_compaction.py": 3,
    "tests/unit/archive/test_bounded_files.py": 4,
    "tests/unit/archive/test_hostile_s3.py": 8,
    "tests/unit/archive/test_odd_documents.py::test_an_empty_cell_ends_no_command": 0,
    "tests/unit/archive/test_odd_documents.py::test_empty_cells_of_an_analysis[verdicts]": 0,
    "tests/unit/archive/test_odd_documents.py": 6,
    "tests/unit/cli/commands/test_cron.py": 8,
    "tests/unit/cli/commands/test_failures.py::test_a_letter_that_dies_afterwards": 2,
    "tests/unit/cli/run/test_run.py": 4,
    "tests/unit/cli/test_completion.py": 3,
    "tests/unit/cli/test_hostile_letters.py": 12,
    "tests/unit/cli/test_odd_words.py": 12,
    "tests/unit/cli/test_selecting.py": 7,
    "tests/unit/cli/test_views_of_letters.py": 5,
    "tests/unit/connectors/activemq/test_hostile_amqp10_sending.py": 4,
    "tests/unit/connectors/kafka/test_hostile_cluster.py": 7,
    "tests/unit/connectors/test_given.py::test_a_pipe_that_is_open_already_is_read": 0,
    "tests/unit/connectors/test_given.py": 7,
    "tests/unit/connectors/test_deadline.py": 4,
    "tests/unit/connectors/test_web.py": 8,
    "tests/unit/core/test_odd_configuration.py": 2,
    "tests/unit/operations/test_letters.py": 5,
    "tests/unit/operations/test_what_goes_along.py::test_of_one_line_alone": 4,
    "tests/unit/replay/test_apply.py": 8,
    "tests/unit/replay/test_apply_together.py::test_a_signal": 2,
    "tests/unit/replay/test_apply_together.py::test_two_applies": 2,
    "tests/unit/replay/test_apply_together.py::test_what_was_never_sent": 6,
    "tests/unit/replay/test_apply_together.py::test_a_damaged_mark": 6,
    "tests/unit/replay/test_bound_content.py": 6,
    "tests/unit/replay/test_hostile_ledger.py": 6,
    "tests/unit/replay/test_hostile_ledger_servers.py::test_a_server_without_tls": 1,
    "tests/unit/replay/test_hostile_ledger_servers.py": 8,
    "tests/unit/replay/test_plan.py": 4,
    "tests/unit/replay/test_plan_file.py": 4,
    "tests/unit/replay/test_ramp.py::test_a_broker_that_fails": 3,
    "tests/unit/replay/test_reconcile.py": 5,
    "tests/unit/reports/test_masking.py": 12,
    "tests/unit/reports/test_rendering.py": 4,
    "tests/unit/replay/test_model.py": 2,
    "tests/unit/test_costs.py": 8,
    "tests/unit/test_scheduling.py::test_a_worker_that_dies": 0,
    "tests/unit/web/test_access.py": 4,
    "tests/unit/web/test_agents.py": 6,
    "tests/unit/web/test_attacks.py::test_no_parameter_says_where": 18,
    "tests/unit/web/test_attacks.py": 9,
    "tests/unit/web/test_look.py::test_a_page_whose_reading": 3,
    "tests/unit/web/test_pages.py": 8,
    "tests/unit/web/test_proposals.py": 4,
    "tests/unit/web/test_rights.py": 6,
    "tests/unit/web/test_same_in_a_shell.py": 10,
}
"""Beginning of a test's name -> every how many-th of its rows `make test` runs; none where it is 0."""


def is_thorough(nodeid: str, row: int) -> bool:
    """Whether `make test` leaves out a test, which is the row of that number of its function."""
    is_left_out = not nodeid.startswith(QUICK) or nodeid.startswith(THOROUGH)
    if is_left_out or OTHER & set(re.split(r"[\[\]-]", nodeid)):
        return True
    every = next((every for name, every in EVERY.items() if nodeid.startswith(name)), 1)
    return every == 0 or row % every > 0


def is_slow(nodeid: str) -> bool:
    """Whether `make check` leaves a test to `make test`."""
    return not nodeid.startswith("tests/unit") or nodeid.startswith(SLOW)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which nothing would run: each worker would compile them, and what they import."""
    left_out = re.findall(r"\w+", config.option.markexpr.partition("not ")[2])
    name = collection_path.relative_to(config.rootpath).as_posix()
    if collection_path.suffix != ".py":
        return None
    if "thorough" in left_out and not has_promises(name):
        return True
    return ("slow" in left_out and is_slow(name)) or None


def has_promises(file: str) -> bool:
    """Whether `make test` runs a test of this file."""
    return any(file.startswith(name.partition("::")[0]) for name in QUICK)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make check` and `make test` do not run."""
    rows: Counter[str] = Counter()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if is_thorough(item.nodeid, rows[function]):
            item.add_marker("thorough")
        elif is_slow(item.nodeid):
            item.add_marker("slow")
        rows[function] += 1
