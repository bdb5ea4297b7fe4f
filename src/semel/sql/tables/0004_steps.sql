-- The journal of a run's steps. Append-only: an intent, errors, at most one result per step.
create table semel.step (
    project_id  text   not null,
    run_id      uuid   not null,
    entry_id    uuid   not null,
    step_key    text   not null,
    entry       text   not null,
    attempt     int    not null,
    fence       bigint not null,
    worker_id   text   not null,
    content     jsonb  not null,
    recorded_at timestamptz not null,

    primary key (project_id, run_id, entry_id),
    constraint step_entry_is_known check (entry in ('intent', 'error', 'result')),
    constraint step_key_is_short check (octet_length(step_key) between 1 and 255)
);

create unique index step_has_one_result on semel.step (project_id, run_id, step_key)
    where entry = 'result';
