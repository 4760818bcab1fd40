"""What the files say in words: which test of ours shows it, or why it cannot apply.

A section of `PROSE` holds nothing that a machine could play; of other sections it is a part of a case. Words
are found by the name of the case, or, for a part, by the words themselves. tests/conformance checks that each
test that is named here exists, and that nothing is left in words without one.
Words of other files, without a named test, are listed as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from tests.support.conformance.case import SkipCase

IN_WORDS: Final = "in words, not in steps that a machine could play: a test of ours shows it"
NOT_NAMED: Final = "in words, and no test of ours is named for it"

Tests: TypeAlias = tuple[str, ...]


def _in(file: str) -> Callable[..., Tests]:
    """Names of tests in that file, as ``file::test``."""
    return lambda *names: tuple(f"{file}::{name}" for name in names)


_CHECKPOINT: Final = _in("tests/unit/core/checkpoint/test_checkpoint.py")
_BEHAVIOURS: Final = _in("tests/unit/core/checkpoint/test_checkpoint_behaviours.py")
_MANY: Final = _in("tests/unit/core/checkpoint/test_checkpoint_many.py")
_RACE: Final = _in("tests/unit/core/checkpoint/test_stop_race.py")
_JOB: Final = _in("tests/unit/core/job/test_job_machine.py")
_FAILURES: Final = _in("tests/unit/core/job/test_failure_behaviours.py")
_HANDLER: Final = _in("tests/unit/core/execution/test_failure_handler.py")
_BACKOFF: Final = _in("tests/unit/core/execution/test_restart_backoff.py")
_EXCHANGE: Final = _in("tests/unit/worker/exchange/test_exchange.py")
_BACKGROUND: Final = _in("tests/unit/worker/task/test_background.py")
_RESTORE: Final = _in("tests/conformance/test_conformance_restore.py")
_COMMIT: Final = _in("tests/conformance/test_conformance_committer.py")
_LIFE: Final = _in("tests/conformance/test_conformance_lifecycle.py")
_FINAL: Final = _in("tests/unit/core/job/test_final_failover.py")
_KEY_GROUPS: Final = _in("tests/unit/core/graph/test_max_parallelism.py")
_IN_FLIGHT: Final = _in("tests/unit/core/task/test_barriers_in_flight.py")

SHOWN_BY: Final[Mapping[str, Mapping[str, Tests]]] = {
    "coordinatorBehaviours": {
        "not all tasks running": _BEHAVIOURS("test_nothing_is_sent_when_a_task_does_not_run"),
        "some tasks finished, feature disabled": _BEHAVIOURS("test_a_checkpoint_when_a_task_has_finished"),
        "tasks finished and IOException": _BEHAVIOURS("test_a_checkpoint_when_a_task_has_finished"),
        "decline": _BEHAVIOURS(
            "test_a_declined_checkpoint_is_told_to_all_once_and_what_comes_later_is_ignored"
        ),
        "decline with job failing": _CHECKPOINT("test_one_failure_more_than_tolerable_fails_the_job"),
        "happy path": _BEHAVIOURS("test_acks_come_in_any_order_and_twice"),
        "timeout": _CHECKPOINT("test_a_triggered_checkpoint"),
        "IOException of storage": _BEHAVIOURS("test_a_directory_that_cannot_be_made_counts"),
        "wrong messages": _BEHAVIOURS(
            "test_an_ack_of_another_job_changes_nothing", "test_acks_of_what_is_not_there_change_nothing"
        ),
        "max concurrent": _MANY("test_as_many_as_allowed_and_each_completion_makes_room_for_one"),
        "min pause": _BEHAVIOURS(
            "test_the_pause_counts_from_the_completion",
            "test_the_pause_counts_from_the_completion_of_a_savepoint_too",
        )
        + _CHECKPOINT("test_a_savepoint_ignores_the_pause_is_not_announced_and_supersedes_nothing"),
        "interval smaller than pause": _BEHAVIOURS("test_the_pause_counts_from_the_completion"),
        "unaligned needs max concurrent 1": _MANY("test_unaligned_checkpoints_come_one_at_a_time"),
        "savepoints are not subsumed and do not subsume": _MANY(
            "test_savepoints_neither_subsume_nor_are_subsumed"
        ),
        "concurrent savepoints": _MANY("test_five_savepoints_run_at_once_and_complete_in_any_order"),
        "min pause does not delay savepoints": _MANY(
            "test_five_savepoints_run_at_once_and_complete_in_any_order"
        ),
        "sync savepoint declined": _BEHAVIOURS(
            "test_a_synchronous_savepoint_that_is_declined_fails_the_job_whatever_is_tolerable"
        ),
        "shutdown": _BEHAVIOURS("test_a_job_that_ends_while_a_snapshot_is_being_started_refuses_it"),
        "trigger while triggering": _MANY("test_only_one_is_being_started_at_a_time"),
        "failed trigger does not block the queue": _BEHAVIOURS(
            "test_a_request_that_fails_does_not_keep_the_others_from_their_turn"
        ),
        "canceller during trigger": _MANY(
            "test_the_next_one_starts_when_the_one_that_was_being_started_is_given_up"
        ),
        "discarding a triggering checkpoint": _MANY(
            "test_the_next_one_starts_when_the_one_that_was_being_started_is_given_up"
        ),
        "abort carries latest completed id": _BEHAVIOURS(
            "test_a_completed_savepoint_is_not_the_latest_completed_one_of_an_abort"
        ),
        "operator coordinators": _CHECKPOINT(
            "test_a_snapshot_starts_only_when_every_split_has_arrived_and_holds_back_the_others"
        ),
        "region recovery resets master hooks": _BEHAVIOURS(
            "test_readers_that_restart_give_their_splits_back_and_no_others_do"
        ),
        "null subtask state": _BEHAVIOURS("test_a_task_without_state_is_one_without_state"),
        "retention with savepoints in store": _BEHAVIOURS(
            "test_the_last_checkpoint_and_the_last_savepoint_are_kept"
        ),
    },
    "stopWithSavepointTermination": {
        "happy path": _JOB(
            "test_a_stop_is_answered_when_the_job_has_finished", "test_a_stop_ends_periodic_checkpoints"
        ),
        "savepoint failed": _BEHAVIOURS("test_a_stop_that_fails_brings_periodic_checkpoints_back"),
        "savepoint failed, executions failed": _JOB(
            "test_a_stop_that_was_still_waiting_when_the_job_failed_leaves_nothing_behind",
            "test_a_stop_that_a_task_declines_is_answered_and_the_job_goes_on",
        ),
        "savepoint failed, executions finished": _BEHAVIOURS(
            "test_a_stop_that_fails_when_a_task_has_finished_is_answered"
        ),
        "StopWithSavepointTerminationManager": _JOB("test_a_stop_is_answered_when_the_job_has_finished")
        + _RACE("test_the_stop_succeeds_with_the_task_as_finished"),
    },
    "failureHandlingBehaviours": {
        "normal task failure": _HANDLER("test_normal_task_failure"),
        "restart suppressed by strategy": _HANDLER("test_restart_suppressed_by_strategy"),
        "fail/cancel/suspend bump vertex versions": _FAILURES(
            "test_all_outstanding_delayed_restarts_become_void",
            "test_all_outstanding_delayed_deployments_become_void",
        ),
        "abort pending checkpoints on restart": _FAILURES(
            "test_pending_checkpoints_are_aborted_when_tasks_are_restarted_not_counted_as_failed"
        ),
        "restore state on restart": _FAILURES(
            "test_latest_completed_checkpoint_is_restored_to_exactly_the_restarted_vertices"
        ),
        "slot allocation timeout": _FAILURES(
            "test_a_slot_allocation_timeout_is_a_failure_of_the_vertex_and_goes_through_the_restart_strategy"
        ),
        "unknown execution": _FAILURES("test_the_state_of_an_unknown_execution_changes_nothing"),
        "reset before re-schedule": _FAILURES(
            "test_a_vertex_is_created_anew_before_the_strategy_restarts_tasks"
        ),
        "produced partition registration": _FAILURES(
            "test_partitions_registered_too_late_are_released",
            "test_deployment_waits_for_the_registration_of_all_produced_partitions",
            "test_a_deployment_that_fails_or_is_not_answered_in_time_is_a_task_failure",
        ),
        "checkpoint scheduler and blocking edges": _FAILURES(
            "test_no_checkpoint_is_triggered_while_a_running_task_has_a_blocking_output"
        ),
        "PartitionNotFound / RemoteTransport / LocalTransport": _FAILURES(
            "test_a_partition_that_was_not_found_is_marked_for_this_decision_only"
        ),
    },
    "configurationDefaults": {
        "precedence": _BACKOFF(
            "test_the_jobs_own_options_win", "test_a_bad_value_is_refused_with_its_key_and_what_is_allowed"
        )
    },
    "restoreBehaviours": {
        "max parallelism of state < new parallelism": _KEY_GROUPS(
            "test_more_subtasks_than_key_groups_are_refused"
        ),
        "max parallelism changed, new one was auto-derived": _KEY_GROUPS(
            "test_max_parallelism_of_a_restored_job"
        ),
        "same parallelism keyed state": _RESTORE("test_keyed_state_stays_at_the_same_parallelism"),
        "rescaled keyed state": _RESTORE("test_keyed_state_goes_to_all_whose_key_groups_it_has"),
        "new operator without state": _RESTORE("test_a_new_operator_starts_empty"),
        "in-flight data and rescale": _IN_FLIGHT(
            "test_rows_in_flight_find_their_subtask",
            "test_rows_that_are_bound_to_a_subtask_are_refused_at_another_parallelism",
        ),
        "only one side has channel state": _RESTORE("test_subtasks_without_rows_in_flight_are_restored_too"),
        "isRestored is per task": _RESTORE("test_a_task_without_state_in_the_snapshot_is_not_restored"),
        "graph modification check": _RESTORE("test_a_changed_job_is_checked_whatever_it_starts_from"),
    },
    "committerOperator": {
        "commit on complete": _COMMIT("test_committables_are_committed_once_and_shown_to_what_follows"),
        "restore": _COMMIT("test_restored_committables_are_committed_before_anything_else"),
        "retries": _COMMIT("test_a_commit_is_tried_again_as_often_as_the_option_says"),
        "duplicate summary": _COMMIT("test_a_second_summary_is_refused"),
        "too many committables": _COMMIT("test_more_committables_than_announced_are_refused"),
        "writer end of input": _COMMIT("test_a_writer_at_its_end_flushes_sends_all_and_takes_nothing_more"),
        "writer without committer": _COMMIT("test_a_writer_without_a_committer_flushes_and_sends_nothing"),
    },
    "sequences": {
        "notifyCheckpointComplete": _LIFE(
            "test_notices_come_first_tail_to_head_and_once",
            "test_all_operators_are_told_of_a_completion_that_one_cannot_bear",
        ),
        "bounded source task ends, checkpointing ENABLED…": _LIFE(
            "test_a_finished_task_waits_for_a_checkpoint_from_after_its_end"
        ),
        "stop-with-savepoint without drain (SUSPEND)": _LIFE(
            "test_a_stop_without_drain_ends_nothing_but_the_task"
        ),
        "stop-with-savepoint aborted or declined": _LIFE("test_a_stop_that_fails_fails_the_task"),
        "cancel": _LIFE(
            "test_a_cancelled_task_only_closes_also_what_was_never_opened",
            "test_nothing_is_sent_by_a_cancelled_or_failed_task",
        ),
        "task restored as FINISHED": _LIFE("test_a_task_restored_as_finished_calls_nothing"),
    },
    "invariants": {
        "an operator is finished only after…": _LIFE("test_inputs_end_behind_the_finish_of_all_producers"),
        "per operator and input: last element…": _LIFE("test_the_end_of_an_operator_comes_in_order"),
        "after finish only checkpoint callbacks…": _LIFE("test_after_finish_come_only_checkpoints"),
        "MAX_WATERMARK is received at most once…": _LIFE("test_the_end_of_time_comes_once_per_input"),
        "with stop-with-savepoint all subtasks…": _LIFE(
            "test_all_subtasks_see_the_same_last_checkpoint_of_a_stop"
        ),
        "open order tail->head…": _LIFE("test_calls_of_a_chain_come_in_flinks_order"),
        "timers registered after quiesce…": _LIFE("test_no_timer_fires_behind_the_end_of_data"),
    },
    "wireEvents": {
        "nothing": _LIFE("test_nothing_is_sent_by_a_cancelled_or_failed_task"),
        "partition is failed": _EXCHANGE("test_a_released_attempt_has_no_partitions"),
        "consumers get a connection/partition error or are cancelled first": _EXCHANGE(
            "test_a_stream_that_breaks_fails_its_consumer_unless_it_was_complete"
        ),
        "endInput-records of a non-head operator come after the MAX_WATERMARK": _LIFE(
            "test_what_an_operator_sends_at_its_end_comes_after_the_end_of_time"
        ),
    },
    "failurePhases": {
        "pending checkpoint aborted": _FAILURES(
            "test_pending_checkpoints_are_aborted_when_tasks_are_restarted_not_counted_as_failed"
        ),
        "others get notifyCheckpointAborted": _BEHAVIOURS(
            "test_a_declined_checkpoint_is_told_to_all_once_and_what_comes_later_is_ignored"
        ),
        "counts towards tolerable failures": _CHECKPOINT(
            "test_one_failure_more_than_tolerable_fails_the_job"
        ),
        "the checkpoint STAYS completed": _BACKGROUND(
            "test_a_commit_that_fails_fails_its_task_and_names_the_operator"
        ),
        "after restart commit is repeated from state": _BACKGROUND(
            "test_what_was_being_committed_at_a_failure_is_committed_after_the_restore"
        ),
        "while waiting for the final checkpoint": _FINAL(
            "test_a_finished_task_comes_back_as_the_last_checkpoint_has_it"
        ),
    },
}

NOT_APPLICABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "coordinatorBehaviours": {
        "master hook failure": "there are no master hooks; splits are held back by `Sources` instead",
        "canceller on disposed": "a timer is cancelled by a command, which has no result",
    },
    "stopWithSavepointTermination": {
        "termination before savepoint result": (
            "both are events of one machine; it has no handler to misuse"
        ),
        "both or neither argument": "both are events of one machine; it has no handler to misuse",
    },
}
PROSE: Final = frozenset(
    {
        "coordinatorBehaviours",
        "stopWithSavepointTermination",
        "failureHandlingBehaviours",
        "restoreBehaviours",
        "committerOperator",
        "sequences",
        "invariants",
    }
)


_Found = TypeVar("_Found")


def in_words(section: str, words: str) -> SkipCase:
    """Why a case, or a part of one, of these words is not played."""
    reason = _found(NOT_APPLICABLE, section, words)
    if reason is not None:
        return SkipCase(reason)
    tests = _found(SHOWN_BY, section, words)
    return SkipCase(NOT_NAMED) if tests is None else SkipCase(IN_WORDS, *tests)


def _found(table: Mapping[str, Mapping[str, _Found]], section: str, words: str) -> _Found | None:
    """By the words, or else by what they begin with: keys that end with …"""
    known = table.get(section, {})
    if words in known:
        return known[words]
    starts = (key for key in known if key.endswith("…") and words.startswith(key[:-1]))
    return next((known[start] for start in starts), None)
