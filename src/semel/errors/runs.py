"""What ends a run or a step, and what cannot be done with one."""

from __future__ import annotations

from semel.errors.base import SemelError


class LeaseLost(SemelError):
    """This claim no longer holds its run. Drop the work; another worker owns it or it ended."""

    code = "E-LEASE-001"
    sqlstate = "SML01"
    http_status = 409
    title = "lease lost"
    remedy = "Stop this attempt and write nothing more for it."


class NoSuchRun(SemelError):
    """No run has this id in this project."""

    code = "E-RUN-001"
    sqlstate = "SMR01"
    http_status = 404
    title = "no such run"
    remedy = "Check the id and the project: `semel run list` shows what is there."


class NoSuchBatch(SemelError):
    """No batch of this name is kept in this project."""

    code = "E-BATCH-001"
    sqlstate = "SMB01"
    http_status = 404
    title = "no such batch"
    remedy = "Check the name and the project: `semel batch list` shows what is there."


class NoSuchWorker(SemelError):
    """No worker of this id has been seen for a day."""

    code = "E-WORKER-001"
    sqlstate = "SMW01"
    http_status = 404
    title = "no such worker"
    remedy = "Each start of a worker has an id of its own: `semel worker list` shows them."


class RunRefused(SemelError):
    """The run's state does not allow this."""

    code = "E-RUN-002"
    sqlstate = "SMR02"
    http_status = 409
    title = "not allowed in this state"
    remedy = "`semel run show` names the state; the docs draw what it allows."


class AttemptsExhausted(SemelError):
    """The last allowed attempt ended without success."""

    code = "E-RUN-003"
    sqlstate = "SMR03"
    http_status = 409
    title = "Max retry attempts exceeded"
    remedy = "Read the attempts in `semel run show`, mend the cause, then start or retry it."


class DeadlinePassed(SemelError):
    """The run's deadline passed before it finished."""

    code = "E-RUN-004"
    sqlstate = "SMR04"
    http_status = 409
    title = "deadline passed"
    remedy = "Start it again with a later deadline."


class RunCancelled(SemelError):
    """The run was cancelled."""

    code = "E-RUN-005"
    sqlstate = "SMR05"
    http_status = 409
    title = "cancelled"
    remedy = "Start a new run if the work is still wanted."


class HandlerFailed(SemelError):
    """The handler raised. The run is tried again while attempts are left."""

    code = "E-RUN-006"
    sqlstate = "SMR06"
    http_status = 409
    retryable = True
    title = "the handler raised"
    remedy = "Read the reason in `semel run show` and mend the handler."


class BadResult(SemelError):
    """What the handler returned cannot be stored. Trying again would do the work twice."""

    code = "E-RUN-007"
    sqlstate = "SMR07"
    http_status = 409
    title = "the result cannot be stored"
    remedy = "Return JSON of at most 1 MiB; keep larger results elsewhere and return where."


class DoNotRetry(SemelError):
    """
    Raise it in a handler to end the run at once, whatever attempts are left.

    Subclass it for errors of your own that no other attempt can mend.
    """

    code = "E-RUN-008"
    sqlstate = "SMR08"
    http_status = 409
    title = "the handler gave up"
    remedy = "Read the reason in `semel run show`; mend the cause and retry or start it again."


class UnreadableInput(SemelError):
    """The run's input is JSON to PostgreSQL, but too deep or too long a number for Python."""

    code = "E-RUN-009"
    sqlstate = "SMR09"
    http_status = 409
    title = "the input cannot be read"
    remedy = "Start it again with an input of fewer levels or digits."


class ChildFailed(SemelError):
    """A child that the handler waited for ended FAILED or CANCELLED."""

    code = "E-RUN-010"
    sqlstate = "SMR10"
    http_status = 409
    title = "a child run failed"
    remedy = "Read the child in `semel run show`; catch ChildFailed to go on without it."


class WaitTimedOut(SemelError):
    """What the handler waited for did not come within its timeout."""

    code = "E-RUN-011"
    sqlstate = "SMR11"
    http_status = 409
    title = "waited in vain"
    remedy = "Catch WaitTimedOut to go on without it, or allow more time."


class JournalMismatch(SemelError):
    """The handler asks for other steps than its journal has: its code changed under a live run."""

    code = "E-STEP-001"
    sqlstate = "SMS01"
    http_status = 409
    title = "the journal does not match the code"
    remedy = (
        "Bring the old code back and `semel run retry`, or `semel run compensate`;"
        " next time guard the change with run.patched(name) or a new version."
    )


class BadStepResult(SemelError):
    """What a step returned cannot be journaled. Its effect stands; it is not tried again."""

    code = "E-STEP-002"
    sqlstate = "SMS02"
    http_status = 409
    title = "the step's result cannot be stored"
    remedy = "Return JSON of at most 1 MiB; keep larger results elsewhere and return where."


class UnknownUndo(SemelError):
    """The undo of a step is not registered in this program, or cannot take the step's arguments."""

    code = "E-STEP-003"
    sqlstate = "SMS03"
    http_status = 409
    title = "no such compensation"
    remedy = (
        "Register it with @app.compensation(name); it is called as undo(*args, result=...)."
    )


class StepInParallel(SemelError):
    """Two steps of one name run at the same time: no key could tell their results apart."""

    code = "E-STEP-004"
    sqlstate = "SMS04"
    http_status = 409
    title = "the same step twice at once"
    remedy = "Give each parallel step a name of its own."


class StepFailed(SemelError):
    """A step failed in an earlier attempt, and the handler went on without it; that stands."""

    code = "E-STEP-005"
    sqlstate = "SMS05"
    http_status = 409
    title = "a step failed"
    remedy = "Read its errors in `semel run show`; start a new run once the cause is gone."


class NestedStep(SemelError):
    """A step or a wait was asked for inside a step or a transaction."""

    code = "E-STEP-007"
    sqlstate = "SMS07"
    http_status = 409
    title = "a step inside a step"
    remedy = (
        "Ask for it in the handler, before or after the other; a step's function is one step."
    )


class UndoFailed(SemelError):
    """A compensation did not succeed; the message names what is not undone."""

    code = "E-STEP-006"
    sqlstate = "SMS06"
    http_status = 409
    title = "not everything could be undone"
    remedy = (
        "Mend the cause and `semel run retry` it, or `semel run skip` the step with a reason."
    )
