-- One row for each project that a worker, an operator or upkeep has met.
-- Nothing on the way of an event touches it, so accepting never waits for it.
create table semel.project (
    project_id  text primary key,
    created_at  timestamptz not null,
    max_running int,                    -- runs leased at once over all agents; null: no limit
    swept_at    timestamptz,            -- the reaper's last look
    blind_until timestamptz,            -- the reaper judges no one before this moment
    leases_at   timestamptz,            -- the reaper's last look at leases, which costs more
    purged_at   timestamptz,            -- the last purge of what is past its time

    constraint project_may_run_at_least_one check (max_running >= 1),
    constraint project_name_is_a_slug check (project_id ~ '^[a-z0-9][a-z0-9_-]{0,63}$')
);

-- An agent as the workers that serve it announce it.
create table semel.agent (
    project_id   text not null,
    agent        text not null,
    max_attempts int  not null,
    executor     text not null,
    max_running  int,                   -- runs leased at once, over all workers; null: no limit
    paused_at    timestamptz,           -- while set, no run of it is claimed
    seen_at      timestamptz,           -- null: no worker has announced it yet

    primary key (project_id, agent),
    constraint agent_may_start_at_least_once check (max_attempts >= 1),
    constraint agent_may_run_at_least_one check (max_running >= 1)
);

-- A source as the ingress that serves it announces it. Secrets stay in its configuration.
create table semel.source (
    project_id   text not null,
    source       text not null,
    channel_type text not null,
    agent        text,
    seen_at      timestamptz not null,

    primary key (project_id, source)
);

-- Bearer tokens for the API. Only the SHA-256 of a token is kept.
create table semel.token (
    project_id text  not null,
    token_id   uuid  not null,
    token_hash bytea not null,
    name       text  not null default '',
    role       text  not null,
    source     text,                    -- a producer's runs carry this source
    created_at timestamptz not null,
    revoked_at timestamptz,

    primary key (project_id, token_id),
    constraint token_hash_is_unique unique (project_id, token_hash),
    constraint token_role_is_known check (role in ('viewer', 'producer', 'operator', 'approver', 'admin'))
);
