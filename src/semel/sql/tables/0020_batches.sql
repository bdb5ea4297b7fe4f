-- Batches, calls that collapse into one run, and what an operator asks of a worker that is at work.

-- Runs that were started together. No row here changes while they run: how far they are is counted
-- by an index when somebody looks, and written down once, when the last has ended.
create table semel.batch (
    project_id   text  not null,
    batch        text  not null,        -- its name
    agent        text  not null,
    on_complete  text,                  -- the agent that is told of its end
    total        int   not null default 0, -- runs it has
    duplicates   int   not null default 0, -- its inputs whose key had a run already
    digest       bytea,                 -- of its inputs in their order; null: more may come
    created_at   timestamptz not null,
    completed_at timestamptz,           -- null: one of its runs lives, or upkeep has not come yet
    done         int,                   -- how they ended, as it was at completed_at
    failed       int,
    cancelled    int,
    callback_id  uuid,                  -- the run of on_complete; there is one, whatever is retried

    primary key (project_id, batch),
    constraint batch_name_is_short check (octet_length(batch) between 1 and 255),
    constraint batch_is_counted_when_complete check (
        (completed_at is null) = (done is null and failed is null and cancelled is null))
);

create index batch_open on semel.batch (project_id, batch) where completed_at is null;
create index batch_by_age on semel.batch (project_id, created_at, batch);

alter table semel.run add column batch text;         -- that started it
alter table semel.run_history add column batch text;

-- Walked from its end: what was started last is claimed last, so a living run is found at once.
create index run_batch on semel.run (project_id, batch, run_id) where batch is not null;
create index run_history_batch on semel.run_history (project_id, batch, status) where batch is not null;

-- A key whose calls collapse, and the run that they collapse into until it is claimed.
create table semel.debounce (
    project_id   text not null,
    agent        text not null,
    debounce_key text not null,
    run_id       uuid not null,
    calls        int  not null,         -- that collapsed into it
    latest_at    timestamptz,           -- it becomes ready by then, however often it is called; null: no limit

    primary key (project_id, agent, debounce_key),
    constraint debounce_key_is_short check (octet_length(debounce_key) between 1 and 1024)
) with (fillfactor = 70);

create index debounce_by_run on semel.debounce (project_id, run_id);

alter table semel.worker
    add column draining_at timestamptz, -- it was asked to claim nothing more
    add column drained_at  timestamptz, -- it says that it does not, and holds nothing
    add column slots_told  int,         -- by an operator; null: as it was started
    add constraint worker_is_told_some_slots check (slots_told between 1 and 10000);
