-- Tool calls: a run asks a tool, and another run makes the call.

alter table semel.wait
    drop constraint wait_kind_is_known,
    add constraint wait_kind_is_known check (kind in ('sleep', 'retry', 'signal', 'child', 'approval', 'tool', 'answer')),
    drop constraint wait_ends_some_time,
    add constraint wait_ends_some_time check (kind in ('signal', 'child', 'answer') or due_at is not null);

-- One row for each call, by the step that asked. call_id is the run that makes it.
create table semel.tool (
    project_id  text not null,
    run_id      uuid not null,
    step_key    text not null,
    call_id     uuid not null,
    server      text not null,          -- of semel.toml; app: a function of the program; agents: a run
    tool        text not null,
    tool_key    text not null,          -- the idempotency key, the same at each sending
    state       text not null default 'ASKED',
    repeatable  boolean not null default false, -- as the tool said when it was first sent
    round       int  not null default -1,       -- the last that was sent; above 0 each resumes a sealed state
    sends       int  not null default 0,
    via         text,                   -- call or callback: how it was answered
    asked_at    timestamptz not null,
    sent_at     timestamptz,            -- first
    answered_at timestamptz,            -- when its caller was told

    primary key (project_id, run_id, step_key),
    constraint tool_state_is_known check (state in
        ('ASKED', 'SENT', 'ANSWERED', 'FAILED', 'REFUSED', 'TIMED_OUT', 'UNKNOWN', 'VOID')),
    constraint tool_is_sent_before_it_answers check (state <> 'SENT' or round >= 0)
);

create unique index tool_by_call on semel.tool (project_id, call_id);
create index tool_answered on semel.tool (project_id, answered_at);

-- What a tool that answers later was given to do so. Only the SHA-256 of its secret is kept.
create table semel.tool_token (
    project_id text  not null,
    token_hash bytea not null,
    run_id     uuid  not null,          -- the call's
    minted_at  timestamptz not null,

    primary key (project_id, token_hash)
);

create index tool_token_by_run on semel.tool_token (project_id, run_id);
