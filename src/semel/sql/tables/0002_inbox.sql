-- What arrives: the dedupe row is the identity of an event, a delivery is one arrival of it.

-- Narrow on purpose: this is the only table that every arrival must look into.
-- Expired by age of last_seen_at in small batches, never by partition: a unique index over
-- time partitions would have to contain the time.
create table semel.dedupe (
    project_id        text  not null,
    dedupe_key        bytea not null,   -- SHA-256 of the length-prefixed source and provider event id
    source            text  not null,
    channel_type      text  not null,
    provider_event_id text  not null,
    event_id          uuid  not null,
    run_id            uuid,             -- null: recorded, and no run was wanted
    input_digest      bytea,            -- api: the same key with other input is a conflict
    first_seen_at     timestamptz not null,
    last_seen_at      timestamptz not null,
    hits              bigint not null default 1,

    primary key (project_id, dedupe_key)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02);

-- An event's id begins with its first sighting, so this index is also the order of age.
create index dedupe_by_event on semel.dedupe (project_id, event_id);

-- Runs that an event speaks of without having made them: a resolution and the run of its episode.
create table semel.event_link (
    project_id text not null,
    run_id     uuid not null,
    event_id   uuid not null,
    relation   text not null,           -- resolved | superseded | replayed
    content    jsonb not null,          -- what the event says of this run
    linked_at  timestamptz not null,

    primary key (project_id, run_id, event_id)
);

-- The state of each alert of a source; what a notification changes in it is what is new.
create table semel.fold (
    project_id   text   not null,
    source       text   not null,
    fingerprint  text   not null,
    status       text   not null,
    starts_ns    bigint not null,       -- unix nanoseconds, as the alert says
    ends_ns      bigint not null,       -- 0 while firing
    episode      uuid   not null,
    event_id     uuid   not null,       -- of the last transition
    event_key    bytea  not null,
    run_id       uuid,                  -- of the episode
    changed_at   timestamptz not null,  -- last transition
    seen_at      timestamptz not null,
    seen_digest  bytea  not null,       -- of the last body that named it
    late_at      timestamptz,           -- a firing inside the grace after its resolution
    stale_count  int not null default 0,  -- episodes closed because nobody spoke of them

    primary key (project_id, source, fingerprint),
    constraint fold_status_is_known check (status in ('firing', 'resolved'))
) with (fillfactor = 70);

-- One arrival, and why it did or did not make a run. Append-only, dropped by partition.
create table semel.delivery (
    project_id        text not null,
    delivery_id       uuid not null,
    received_at       timestamptz not null,
    source            text not null,
    channel_type      text not null,
    verdict           text not null,
    reason            text not null,
    provider_event_id text,
    event_id          uuid,
    run_id            uuid,
    body_digest       bytea,
    headers           jsonb not null,   -- secrets are replaced before they get here

    primary key (project_id, received_at, delivery_id)
) partition by range (received_at);

create index delivery_by_event on semel.delivery (project_id, event_id) where event_id is not null;
create table semel.delivery_rest partition of semel.delivery default;

-- Raw bytes, once for each content.
create table semel.body (
    project_id  text  not null,
    body_digest bytea not null,
    content     bytea not null,
    seen_at     timestamptz not null,   -- moved at most daily

    primary key (project_id, body_digest)
);

-- An event as event_accept holds it between its statements; never stored.
create type semel.offer as (
    ord               int,
    source            text,
    channel_type      text,
    provider_event_id text,
    agent             text,
    input             jsonb,
    priority          int,
    max_attempts      int,
    input_digest      bytea,
    dedupe_key        bytea,
    body              int,
    headers           jsonb,
    event_id          uuid,
    run_id            uuid
);
