-- What Alertmanager itself says of its alerts, where a source asks it.

alter table semel.fold add column missed_at timestamptz;  -- since when its API does not have an open one

-- One poll of a source: who does it, and what it last came to.
create table semel.alert_poll (
    project_id  text not null,
    source      text not null,
    holder      uuid,                  -- the process that polls; null: none
    lease_until timestamptz not null,
    tried_at    timestamptz not null,  -- the last poll
    polled_at   timestamptz,           -- the last one that was answered
    fault       text,                  -- of the last one
    began       text,                  -- when Alertmanager started, in its words
    firing      int not null default 0,     -- alerts that it had
    found       bigint not null default 0,  -- alerts that nobody had told us of
    ended       bigint not null default 0,  -- episodes whose resolution nobody had told us of

    primary key (project_id, source)
);

-- They have one argument more.
drop function if exists semel.alert_accept(text, text, text, text, text, bytea, text, interval, text, text, int, timestamptz);
drop function if exists semel.alert_gather(text, text, text, text, text, bytea, text, interval, text, text, int, timestamptz);
drop function if exists semel.fold_stale(text, interval, int, timestamptz);
