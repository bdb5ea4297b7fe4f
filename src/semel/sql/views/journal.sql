-- The journal: entries with their seq, and at the end those that are committed and have none yet.
create or replace view semel.journal as
select e.project_id, e.seq, e.entry_id, e.topic, e.payload, e.request_id, e.run_id, e.finished_at, e.numbered_at
from semel.journal_entry as e
union all
select o.project_id, null::bigint, o.entry_id, o.topic, o.payload, o.request_id, o.run_id, o.finished_at, null::timestamptz
from semel.journal_pending as o;

-- Consumers. `behind` counts the entries of any topic that it has not passed; `passed` says that some of
-- those are gone, so that it stands still until an operator moves it.
create or replace view semel.consumers as
select c.project_id, c.consumer, c.seq, coalesce(p.next_seq - 1, 0) - c.seq as behind,
    c.seq < coalesce(p.dropped_seq, 0) or c.seq > coalesce(p.next_seq - 1, 0) as passed,
    c.holder, c.lease_until, c.created_at, c.moved_at
from semel.journal_cursor as c
left join semel.journal_project as p on p.project_id = c.project_id;
