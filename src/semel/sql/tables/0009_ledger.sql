-- The ledger: one row for each operation that was asked for under a key.
-- A row names who asked for what, never the input; its reply is kept as bytes.
create table semel.operation (
    project_id    text not null,
    request_id    text not null,            -- scoped: the project, the actor and the key are in it
    target        text not null default 'API', -- another one is another system's row: never touched
    event_type    text not null,            -- the procedure
    actor_user_id text,                     -- null: anonymous
    payload       jsonb not null,           -- {"version":2,"digest":"sha256:..."}; {} where an old system kept none
    status        text not null,
    attempts      int  not null,
    mode          text not null default 'atomic',
    holder        uuid,                     -- recorded: the process that executes it
    xact          xid8,                     -- the transaction that claimed it
    reply_status  smallint,
    reply_headers jsonb,                    -- [[name, value], ...] in their order, repeats kept
    reply_body    bytea,
    gone          boolean not null default false, -- executed, and its reply is not kept
    error_code    text,
    error         text,
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    processing_at timestamptz,
    completed_at  timestamptz,
    imported_from text,

    -- No check constraints: each costs a claim and a finish 5 us to compile, and the functions are the
    -- only door. docs/decisions/0018 has the figures.
    primary key (project_id, request_id)
) with (fillfactor = 75); -- a reply is put beside its claim, in the same page and in no index

-- Who executes recorded operations, and when it was last seen.
create table semel.operation_holder (
    project_id text not null,
    holder_id  uuid not null,
    name       text not null,
    started_at timestamptz not null,
    beat_at    timestamptz not null,

    primary key (project_id, holder_id)
) with (fillfactor = 50);
