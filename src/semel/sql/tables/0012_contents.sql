-- What was said under an id that nobody signed: the same again under another id is the same event.

-- One row is one content of a source. It holds the first id it came under, and lives as long as
-- that id is remembered or its source's window lasts, whichever ends first.
create table semel.content (
    project_id        text  not null,
    content_key       bytea not null,   -- SHA-256 of the length-prefixed source and content
    provider_event_id text  not null,   -- whose dedupe row is the event
    kept_until        timestamptz not null, -- moved by each sighting; from then on it counts as absent

    primary key (project_id, content_key)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02);

-- Expiry walks it from the oldest.
create index content_by_age on semel.content (project_id, kept_until);
