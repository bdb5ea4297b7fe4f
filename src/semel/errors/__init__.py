"""
Errors: one tree, one code for each way to be refused.

A code is the same word in SQL, in a log line, in an HTTP body, on the command line and in the
docs; a test holds the four to one another.

    SemelError
    ├── BadRequest          E-REQUEST-001   malformed input of a caller
    │   ├── TooLarge        E-REQUEST-002   a limit with a name was passed
    │   ├── TooOften        E-REQUEST-003   one address asked for too many things that are not there
    │   ├── BadInput        E-REQUEST-004   an operation's input that has no digest
    │   ├── UnsupportedMedia E-REQUEST-005   a media type, or a packing, that is not read
    │   └── BadKey          E-IDEMPOTENT-006
    ├── Duplicate           E-IDEMPOTENT-001  (a normal outcome; never raised)
    ├── KeyConflict         E-IDEMPOTENT-002
    ├── InFlight            E-IDEMPOTENT-003  another request executes it, or may have
    ├── NeedsReconcile      E-IDEMPOTENT-004  PROCESSING for ever: a person must judge it
    ├── ResultNotKept       E-IDEMPOTENT-005
    ├── LegacyUnverifiable  E-IDEMPOTENT-007  a row without an identity to compare
    ├── TransactionEnded    E-IDEMPOTENT-008  a handler that commits or rolls back for us
    ├── TransactionUnfit    E-IDEMPOTENT-009  it has written, is aborted or not READ COMMITTED
    ├── ErrorSwallowed      E-IDEMPOTENT-010  the work caught a database error and went on
    ├── BadReply            E-IDEMPOTENT-011  what an operation replied is no JSON
    ├── UnknownOutcome      E-IDEMPOTENT-012  COMMIT was not answered, and nobody can be asked
    ├── LostRace            E-IDEMPOTENT-013  a deadlock or a serialization failure
    ├── LeaseLost           E-LEASE-001
    ├── NoSuchRun           E-RUN-001
    ├── NoSuchBatch         E-BATCH-001
    ├── NoSuchWorker        E-WORKER-001
    ├── RunRefused          E-RUN-002
    ├── AttemptsExhausted   E-RUN-003
    ├── DeadlinePassed      E-RUN-004
    ├── RunCancelled        E-RUN-005
    ├── HandlerFailed       E-RUN-006   what a handler raised
    ├── BadResult           E-RUN-007   what a handler returned is no JSON, or too large
    ├── DoNotRetry          E-RUN-008   a handler raises it: another attempt cannot help
    ├── NoSuchEvent         E-EVENT-001
    ├── NotReplayable       E-EVENT-002  its raw body is gone, or reads as no event
    ├── NotImportable       E-EVENT-003  a table that is no dedupe table, or a source that has none
    ├── UnreadableInput     E-RUN-009   Python cannot read what PostgreSQL keeps
    ├── ChildFailed         E-RUN-010   a child that was waited for did not complete
    ├── WaitTimedOut        E-RUN-011   a signal, or a child's end, did not come in time
    ├── JournalMismatch     E-STEP-001  the code asks for other steps than the journal has
    ├── BadStepResult       E-STEP-002  no JSON, or too large; its effect stands
    ├── UnknownUndo         E-STEP-003  an undo that is not registered, or takes other arguments
    ├── StepInParallel      E-STEP-004  two steps of one name at the same time
    ├── StepFailed          E-STEP-005  a step that the handler once went on without
    ├── NestedStep          E-STEP-007  a step or a wait inside another
    ├── UndoFailed          E-STEP-006  what could not be undone
    ├── NoSuchApproval      E-APPROVAL-001
    ├── ApprovalExpired     E-APPROVAL-002
    ├── ApprovalDecided     E-APPROVAL-003
    ├── ApprovalRejected    E-APPROVAL-004  raised in the handler, which may go on otherwise
    ├── JournalPassed       E-JOURNAL-001   a cursor stands where the journal has nothing any more
    ├── NoSuchConsumer      E-JOURNAL-002
    ├── CursorLost          E-JOURNAL-003   another instance of the consumer has gone on
    ├── NotifyFailed        E-NOTIFY-001    a notifier that is not configured, refused or is down
    ├── NoSuchOperation     E-OPERATION-001
    ├── NotDrained          E-OPERATION-002  something still executes, or may
    ├── NotALedger          E-OPERATION-003  a table that operations cannot be imported from
    ├── NotReconcilable     E-OPERATION-004  nothing that a person may judge, or not now
    ├── ToolTimedOut        E-TOOL-001
    ├── ToolUnknown         E-TOOL-002  started, not answered, and not to be repeated
    ├── ToolError           E-TOOL-003  the tool's own
    ├── ToolNotCalled       E-TOOL-004  no such tool, or its server is not there
    ├── ToolDown            E-TOOL-005  ends an attempt at a call, which is tried again
    ├── NoSuchCall          E-TOOL-006
    ├── CallEnded           E-TOOL-007  a second answer, or one that comes too late
    ├── BadSchedule         E-SCHEDULE-001  it never comes, or says what it cannot
    ├── NoSuchSchedule      E-SCHEDULE-002
    ├── ScheduleRefused     E-SCHEDULE-003  whose it is does not allow it
    ├── UnknownSource       E-SOURCE-001
    ├── NotAuthentic        E-SOURCE-002
    ├── Quarantined         E-SOURCE-003
    ├── AddressRefused      E-SOURCE-004
    ├── SourceTooOften      E-SOURCE-005
    ├── SpoolUnfit          E-SPOOL-001     the database is away, and so is room on this disk
    ├── Unauthenticated     E-AUTH-001
    ├── Forbidden           E-AUTH-002
    ├── DatabaseUnreachable E-DB-001
    ├── SchemaMismatch      E-DB-002
    ├── EmbeddedError       E-DB-003
    ├── BadConfig           E-CONFIG-001
    └── OurFault            E-INTERNAL-001
"""

from __future__ import annotations

from semel.errors.base import (
    BadInput,
    BadRequest,
    SemelError,
    TooLarge,
    TooOften,
    UnsupportedMedia,
)
from semel.errors.house import (
    BadConfig,
    DatabaseUnreachable,
    EmbeddedError,
    OurFault,
    SchemaMismatch,
)
from semel.errors.inbox import (
    AddressRefused,
    NoSuchEvent,
    NotAuthentic,
    NotImportable,
    NotReplayable,
    Quarantined,
    SourceTooOften,
    SpoolUnfit,
    UnknownSource,
)
from semel.errors.ledger import (
    BadKey,
    BadReply,
    CursorLost,
    Duplicate,
    ErrorSwallowed,
    InFlight,
    JournalPassed,
    KeyConflict,
    LegacyUnverifiable,
    LostRace,
    NeedsReconcile,
    NoSuchConsumer,
    NoSuchOperation,
    NotALedger,
    NotDrained,
    NotReconcilable,
    ResultNotKept,
    TransactionEnded,
    TransactionUnfit,
    UnknownOutcome,
)
from semel.errors.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRejected,
    Forbidden,
    NoSuchApproval,
    NotifyFailed,
    Unauthenticated,
)
from semel.errors.runs import (
    AttemptsExhausted,
    BadResult,
    BadStepResult,
    ChildFailed,
    DeadlinePassed,
    DoNotRetry,
    HandlerFailed,
    JournalMismatch,
    LeaseLost,
    NestedStep,
    NoSuchBatch,
    NoSuchRun,
    NoSuchWorker,
    RunCancelled,
    RunRefused,
    StepFailed,
    StepInParallel,
    UndoFailed,
    UnknownUndo,
    UnreadableInput,
    WaitTimedOut,
)
from semel.errors.schedules import BadSchedule, NoSuchSchedule, ScheduleRefused
from semel.errors.tools import (
    CallEnded,
    NoSuchCall,
    ToolDown,
    ToolError,
    ToolNotCalled,
    ToolTimedOut,
    ToolUnknown,
)

__all__ = [
    "AddressRefused",
    "ApprovalDecided",
    "ApprovalExpired",
    "ApprovalRejected",
    "AttemptsExhausted",
    "BadConfig",
    "BadInput",
    "BadKey",
    "BadReply",
    "BadRequest",
    "BadResult",
    "BadSchedule",
    "BadStepResult",
    "CallEnded",
    "ChildFailed",
    "CursorLost",
    "DatabaseUnreachable",
    "DeadlinePassed",
    "DoNotRetry",
    "Duplicate",
    "EmbeddedError",
    "ErrorSwallowed",
    "Forbidden",
    "HandlerFailed",
    "InFlight",
    "JournalMismatch",
    "JournalPassed",
    "KeyConflict",
    "LeaseLost",
    "LegacyUnverifiable",
    "LostRace",
    "NeedsReconcile",
    "NestedStep",
    "NoSuchApproval",
    "NoSuchBatch",
    "NoSuchCall",
    "NoSuchConsumer",
    "NoSuchEvent",
    "NoSuchOperation",
    "NoSuchRun",
    "NoSuchSchedule",
    "NoSuchWorker",
    "NotALedger",
    "NotAuthentic",
    "NotDrained",
    "NotImportable",
    "NotReconcilable",
    "NotReplayable",
    "NotifyFailed",
    "OurFault",
    "Quarantined",
    "ResultNotKept",
    "RunCancelled",
    "RunRefused",
    "ScheduleRefused",
    "SchemaMismatch",
    "SemelError",
    "SourceTooOften",
    "SpoolUnfit",
    "StepFailed",
    "StepInParallel",
    "TooLarge",
    "TooOften",
    "ToolDown",
    "ToolError",
    "ToolNotCalled",
    "ToolTimedOut",
    "ToolUnknown",
    "TransactionEnded",
    "TransactionUnfit",
    "Unauthenticated",
    "UndoFailed",
    "UnknownOutcome",
    "UnknownSource",
    "UnknownUndo",
    "UnreadableInput",
    "UnsupportedMedia",
    "WaitTimedOut",
    "by_sqlstate",
    "tree",
]


def tree(root: type[SemelError] = SemelError) -> list[type[SemelError]]:
    """Every error class below *root* in this package, in the order of their codes."""
    own = [
        child for child in root.__subclasses__() if child.__module__.startswith(f"{__name__}.")
    ]
    found = [leaf for child in own for leaf in (child, *tree(child))]
    return sorted(found, key=lambda error: error.code)


def by_sqlstate(sqlstate: str | None) -> type[SemelError] | None:
    """The class that stands for *sqlstate*, or None for a state that is not ours."""
    return next((error for error in tree() if error.sqlstate == sqlstate), None)
