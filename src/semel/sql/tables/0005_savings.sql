-- What a run costs in WAL: see docs/decisions/0010-what-a-run-writes.md.

-- A row of its own, with an entry in an index, costs a small body more than its bytes do.
alter table semel.delivery add column body bytea;  -- null: none, or kept in semel.body by body_digest

-- The delivery that made an event stands at the event's own moment (see deliveries_of): only those
-- that came later need an index to be found.
drop index semel.delivery_by_event;
create index delivery_by_event on semel.delivery (project_id, event_id)
    where event_id is not null and verdict <> 'new';

-- Where a new version fits into the page of the old one, WAL has only what is between their equal
-- beginnings and ends. So nothing at the end of a row changes with its first claim either:
-- started_at, the last column, is null until the second (the views know).
alter table semel.run set (fillfactor = 45);
