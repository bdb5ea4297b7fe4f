-- What people judged of operations, and how far the sweep of old operations has come.

-- One row is one judgement; it stays as long as its operation.
create table semel.judgement (
    project_id   text not null,
    judgement_id uuid not null,         -- version 7: its time is in it
    request_id   text not null,
    judged_at    timestamptz not null,
    judged_by    text not null,
    reason       text not null,
    before       jsonb not null,        -- the operation's state that was judged, without its reply
    after        jsonb not null,        -- and the state that this made of it

    primary key (project_id, judgement_id),
    constraint judgement_says_why check (btrim(reason) <> '' and octet_length(reason) <= 8000),
    constraint judgement_says_who check (btrim(judged_by) <> '' and octet_length(judged_by) <= 800)
);
create index judgement_operation on semel.judgement (project_id, request_id);

-- Where the round of retention stands in a project.
create table semel.operation_sweep (
    project_id text not null,
    began_at   timestamptz not null,    -- of this round
    request_id text not null default '', -- the last one looked at
    ended_at   timestamptz,             -- null while it goes on

    primary key (project_id)
);

-- The newest operations are found by when they came. A summary of each stretch of the table, which
-- costs a claim next to nothing; a sorted index would cost each one an entry and its log.
create index operation_created on semel.operation using brin (project_id, created_at)
    with (pages_per_range = 64, autosummarize = on);
