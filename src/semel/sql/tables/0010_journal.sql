-- The journal: what transactions say of what they did, numbered once they are committed.
--
--   appended ──COMMIT──> pending ──numbered──> entry, with a seq ──retention──> gone
--
-- Two tables, so that what readers walk has no dead rows and an entry is never updated.

create table semel.journal_pending (
    project_id  text not null,
    finished_at timestamptz not null,   -- when its transaction said it, larger than all that one saw
    entry_id    uuid not null,
    topic       text not null,
    payload     jsonb not null,
    request_id  text,                   -- of the operation that it comes from
    run_id      uuid,                   -- of the run that it comes from

    primary key (project_id, finished_at, entry_id),
    constraint journal_topic_is_short check (octet_length(topic) between 1 and 255)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create table semel.journal_entry (
    project_id  text not null,
    seq         bigint not null,        -- 1, 2, 3, … without a gap
    entry_id    uuid not null,
    topic       text not null,
    payload     jsonb not null,
    request_id  text,
    run_id      uuid,
    finished_at timestamptz not null,
    numbered_at timestamptz not null,   -- from when on it could be read; retention counts from here

    primary key (project_id, seq)
);

-- One row for a project whose journal was ever numbered.
create table semel.journal_project (
    project_id  text not null primary key,
    next_seq    bigint not null default 1,
    dropped_seq bigint not null default 0, -- the last one that retention took

    constraint journal_drops_what_it_numbered check (dropped_seq < next_seq)
) with (fillfactor = 50);

-- How far a consumer has come.
create table semel.journal_cursor (
    project_id  text not null,
    consumer    text not null,
    seq         bigint not null,        -- the last one that it has done with
    holder      uuid,                   -- who reads on until lease_until, outside of a transaction
    lease_until timestamptz,
    created_at  timestamptz not null,
    moved_at    timestamptz not null,

    primary key (project_id, consumer)
) with (fillfactor = 50);
