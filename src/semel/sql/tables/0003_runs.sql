-- Live runs only: finishing one deletes its row here and appends it to run_history.
--
-- A run is claimable exactly while ready_at is set; due_at is when something must happen to it
-- without anyone's doing (a retry's delay, later a wait's end). No column that a heartbeat or
-- a renewal changes is in an index, so those updates stay inside their page.
create table semel.run (
    project_id     text not null,
    run_id         uuid not null,
    agent          text not null,
    status         text not null,
    lane           smallint not null,   -- see semel.run_lane: lower goes first; 100 and more go alone
    priority       smallint not null,
    attempt_count  int not null default 0,
    attempt_floor  int not null default 0,   -- an operator's retry allows max_attempts above this
    max_attempts   int,                 -- null: what its agent says at the first claim
    release_count  int not null default 0,
    released       boolean not null default false,  -- given back unharmed: the next claim is no new attempt
    fence          bigint not null default 0,
    worker_id      text,
    lease_until    timestamptz,
    heartbeat_at   timestamptz,
    claimed_at     timestamptz,
    reaped_at      timestamptz,
    ready_at       timestamptz,
    due_at         timestamptz,
    deadline_at    timestamptz,         -- not finished by then: FAILED
    unique_key     text,                -- one live run of an agent for each
    failure_code   text,
    failure_reason text,
    input          jsonb,               -- null with a row in run_input when it is large
    source         text,
    event_id       uuid,
    parent_run_id  uuid,
    created_at     timestamptz not null,
    started_at     timestamptz,

    primary key (project_id, run_id),
    constraint run_status_is_live check (
        status in ('PENDING', 'RUNNING', 'WAITING_TOOL', 'WAITING_APPROVAL', 'RESUMED')),
    constraint run_is_leased_exactly_while_running check (
        (status = 'RUNNING') = (worker_id is not null and lease_until is not null)),
    constraint run_is_ready_only_when_claimable check (
        ready_at is null or status in ('PENDING', 'RESUMED')),
    constraint run_is_never_forgotten check (
        status not in ('PENDING', 'RESUMED') or ready_at is not null or due_at is not null),
    constraint run_priority_is_a_digit check (priority between 0 and 9),
    constraint run_may_start_at_least_once check (max_attempts >= 1)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

create index run_claimable on semel.run (project_id, agent, lane, ready_at, run_id)
    where ready_at is not null;
create index run_due on semel.run (project_id, agent, due_at) where due_at is not null;
create index run_overdue on semel.run (project_id, deadline_at) where deadline_at is not null;
create unique index run_unique_while_live on semel.run (project_id, agent, unique_key)
    where unique_key is not null;
create index run_held on semel.run (project_id, agent, worker_id) where worker_id is not null;

-- Inputs too large to be copied by every transition. Written once.
create table semel.run_input (
    project_id text  not null,
    run_id     uuid  not null,
    input      jsonb not null,

    primary key (project_id, run_id)
);

-- Finished runs. Append-only, dropped by partition. Its row is also the last attempt's record.
create table semel.run_history (
    project_id     text not null,
    run_id         uuid not null,
    agent          text not null,
    status         text not null,
    priority       smallint not null,
    attempt_count  int not null,
    max_attempts   int,
    release_count  int not null,
    fence          bigint not null,
    worker_id      text,                -- with the fence: a completion sent again is told `already`
    heartbeat_at   timestamptz,
    claimed_at     timestamptz,
    reaped_at      timestamptz,
    deadline_at    timestamptz,
    unique_key     text,
    failure_code   text,
    failure_reason text,
    input          jsonb,
    result         jsonb,
    source         text,
    event_id       uuid,
    parent_run_id  uuid,
    created_at     timestamptz not null,
    started_at     timestamptz,
    finished_at    timestamptz not null,

    primary key (project_id, run_id, finished_at),
    constraint run_history_status_is_final check (status in ('COMPLETED', 'FAILED', 'CANCELLED')),
    constraint run_history_failure_has_a_code check ((status = 'COMPLETED') = (failure_code is null))
) partition by range (finished_at);

create table semel.run_history_rest partition of semel.run_history default;

-- Attempts that ended without ending their run. Append-only, dropped by partition.
create table semel.attempt (
    project_id text not null,
    run_id     uuid not null,
    fence      bigint not null,
    attempt    int not null,
    worker_id  text not null,
    outcome    text not null,
    code       text,
    reason     text,
    claimed_at timestamptz not null,
    ended_at   timestamptz not null,

    primary key (project_id, run_id, fence, ended_at),
    constraint attempt_outcome_is_known check (outcome in ('failed', 'lost', 'released', 'ended'))
) partition by range (ended_at);

create table semel.attempt_rest partition of semel.attempt default;

-- A worker process in a project, new at each start. Its beat stands for all the runs it holds.
create table semel.worker (
    project_id text not null,
    worker_id  text not null,
    host       text not null,
    pid        int  not null,
    agents     text[] not null,
    slots      int  not null,
    started_at timestamptz not null,
    beat_at    timestamptz not null,
    stopped_at timestamptz,

    primary key (project_id, worker_id)
) with (fillfactor = 50);
