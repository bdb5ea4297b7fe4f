-- Batches, one row each, with how far its runs are: counted now while one of them lives, as it was
-- at completed_at since. Counted are those that are kept.
create or replace view semel.batches as
select b.project_id, b.batch, b.agent, b.total,
    coalesce(l.pending, 0)::int as pending, coalesce(l.running, 0)::int as running, coalesce(l.waiting, 0)::int as waiting,
    coalesce(b.done, h.done, 0)::int as done, coalesce(b.failed, h.failed, 0)::int as failed,
    coalesce(b.cancelled, h.cancelled, 0)::int as cancelled,
    b.duplicates, b.on_complete, b.callback_id, b.created_at, b.completed_at
from semel.batch as b
left join lateral (
    select count(*) filter (where r.status in ('PENDING', 'RESUMED')) as pending,
        count(*) filter (where r.status = 'RUNNING') as running,
        count(*) filter (where r.status in ('WAITING_TOOL', 'WAITING_APPROVAL')) as waiting
    from semel.run as r where r.project_id = b.project_id and r.batch = b.batch) as l on b.completed_at is null
left join lateral (
    select count(*) filter (where s.status = 'COMPLETED') as done,
        count(*) filter (where s.status = 'FAILED') as failed,
        count(*) filter (where s.status = 'CANCELLED') as cancelled
    from semel.run_history as s where s.project_id = b.project_id and s.batch = b.batch) as h on b.completed_at is null;

-- Those that are not complete, without their figures.
create or replace view semel.open_batches as
select b.project_id, b.batch, b.agent, b.digest is null as filling, b.created_at
from semel.batch as b where b.completed_at is null;
