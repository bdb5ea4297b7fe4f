-- What became of a source's requests lately, and when an event last came to it.

-- Counted by each ingress and written down together, at most every ten seconds: a request that is
-- refused leaves nothing else. One row for each outcome and five minutes; kept for a day.
create table semel.source_tally (
    project_id text not null,
    slot_at    timestamptz not null,    -- the beginning of the five minutes
    source     text not null,
    outcome    text not null,           -- a verdict, or refused | forbidden | limited | malformed | failed
    count      bigint not null,

    primary key (project_id, slot_at, source, outcome)
) with (fillfactor = 70);

alter table semel.source
    add column since         timestamptz not null default now(),  -- first announced, or this file's day
    add column last_event_at timestamptz;                         -- of an authentic request; null: none yet
