-- Durable runs: waits, signals, approvals and compensation, beside the journal of steps.

-- kind: work is an agent's own; undo compensates its parent; notify tells a person; child was
-- spawned. has_undo, has_wait: what ending the run must look after, so that most look at nothing.
alter table semel.run
    add column kind     text not null default 'work',
    add column version  text not null default '',       -- of the code that began it; '': of none
    add column has_undo boolean not null default false, -- its journal holds an intent
    add column has_wait boolean not null default false, -- it has waited, and may have waits
    add constraint run_kind_is_known check (kind in ('work', 'undo', 'notify', 'child'));

-- Whether a run that ends has a parent to wake is asked at each end, and most have none.
create index run_children on semel.run (project_id, run_id) where kind = 'child';

alter table semel.run_history
    add column kind     text not null default 'work',
    add column version  text not null default '',
    add column has_wait boolean not null default false,
    add column undo     text,                           -- its compensation: started, or held for an operator
    add constraint run_history_undo_is_known check (undo in ('started', 'held'));

alter table semel.attempt
    drop constraint attempt_outcome_is_known,
    add constraint attempt_outcome_is_known check (outcome in ('failed', 'lost', 'released', 'ended', 'parked'));

-- Entries are numbered within their run: the order of intents is the order of undoing, whatever
-- the clock did.
drop function if exists semel.step_record(text, text, uuid, bigint, text[], text[], text[], timestamptz);
drop view if exists semel.steps;
alter table semel.step
    add column position int,
    add column kind     text not null default 'step',
    add column place    int,                            -- nth call of the handler itself; null: of a task beside it
    add column detail   jsonb;                          -- rows that a transaction's block had read
update semel.step as s set position = n.n
from (select o.project_id, o.run_id, o.entry_id,
             row_number() over (partition by o.project_id, o.run_id order by o.recorded_at, o.entry_id) as n
      from semel.step as o) as n
where s.project_id = n.project_id and s.run_id = n.run_id and s.entry_id = n.entry_id;
alter table semel.step
    drop constraint step_pkey,
    drop column entry_id,
    alter column position set not null,
    add primary key (project_id, run_id, position),
    drop constraint step_entry_is_known,
    add constraint step_entry_is_known check (entry in ('intent', 'error', 'caught', 'patch', 'result'));

-- What a run waits for. A row leaves when it is satisfied, or with the run.
create table semel.wait (
    project_id text not null,
    run_id     uuid not null,
    step_key   text not null,
    kind       text not null,
    place      int,                     -- of its step; its answer keeps it
    name       text,                    -- of the signal
    child_id   uuid,                    -- the run that is waited for
    due_at     timestamptz,             -- when it is over whatever comes
    created_at timestamptz not null,

    primary key (project_id, run_id, step_key),
    constraint wait_kind_is_known check (kind in ('sleep', 'retry', 'signal', 'child', 'approval')),
    constraint wait_ends_some_time check (kind in ('signal', 'child') or due_at is not null)
);

-- What was said to a run. Kept until a step takes it, whether or not the run waits already.
create table semel.signal (
    project_id text not null,
    run_id     uuid not null,
    signal_id  uuid not null,
    name       text not null,
    content    jsonb not null,
    sender     text not null,
    event_id   uuid,
    sent_at    timestamptz not null,
    taken_by   text,                    -- the key of the step that took it

    primary key (project_id, run_id, signal_id),
    constraint signal_name_is_short check (octet_length(name) between 1 and 255)
);

create index signal_untaken on semel.signal (project_id, run_id, name, sent_at, signal_id) where taken_by is null;

-- A question to people, and what became of it.
create table semel.approval (
    project_id  text not null,
    approval_id uuid not null,
    run_id      uuid not null,
    step_key    text not null,
    title       text not null,
    action      jsonb not null,         -- what would be done
    digest      text not null,          -- sha256 of its canonical form: what is decided upon
    state       text not null default 'PENDING',
    need        int  not null,          -- this many people must approve; one may reject
    approvers   text[],                 -- who may decide; null: whoever has the role
    requester   text,                   -- who may not: four eyes
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    decided_at  timestamptz,

    primary key (project_id, approval_id),
    constraint approval_state_is_known check (state in ('PENDING', 'APPROVED', 'REJECTED', 'EXPIRED', 'VOID')),
    constraint approval_is_decided_once check ((state = 'PENDING') = (decided_at is null)),
    constraint approval_needs_someone check (need >= 1)
);

create unique index approval_is_asked_once on semel.approval (project_id, run_id, step_key) where state = 'PENDING';
create index approval_by_run on semel.approval (project_id, run_id);

-- A link that was sent to somebody. Only the SHA-256 of its secret is kept; it dies with the decision.
create table semel.approval_token (
    project_id  text  not null,
    token_hash  bytea not null,
    approval_id uuid  not null,
    recipient   text  not null,
    minted_at   timestamptz not null,

    primary key (project_id, token_hash)
);

create index approval_token_by_approval on semel.approval_token (project_id, approval_id);

-- Who decided, how, from where.
create table semel.approval_vote (
    project_id  text not null,
    approval_id uuid not null,
    voter       text not null,
    decision    text not null,
    reason      text,
    via         text not null,          -- link, api, cli or console
    address     text,
    user_agent  text,
    voted_at    timestamptz not null,

    primary key (project_id, approval_id, voter),
    constraint approval_vote_is_known check (decision in ('approve', 'reject'))
);

-- Signatures that grew.
drop function if exists semel.run_end(text, text, uuid[], bigint[], text, text, text, text[], timestamptz);
drop function if exists semel.run_cancel(text, uuid, text, timestamptz);
drop function if exists semel.run_overdue(text, int, timestamptz);
drop function if exists semel.run_claim(text, text, text, int, interval, int, int[], timestamptz[], boolean, timestamptz);
