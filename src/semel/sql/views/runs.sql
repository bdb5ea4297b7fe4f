-- Runs, live and finished, one row each. Scalar subqueries and equal types on both sides, so that
-- a page in the order of run_id is a merge of index scans, however long the history. key_full: it waits
-- until fewer runs of its concurrency key run.
create or replace view semel.runs as
select r.project_id, r.run_id, r.agent, r.status, r.priority::int as priority, r.attempt_count,
    coalesce(r.max_attempts, (select a.max_attempts from semel.agent as a
                              where a.project_id = r.project_id and a.agent = r.agent), 3) as max_attempts,
    r.fence, r.worker_id, r.lease_until,
    greatest(r.heartbeat_at, r.claimed_at, (select w.beat_at from semel.worker as w
                              where w.project_id = r.project_id and w.worker_id = r.worker_id)) as heartbeat_at,
    r.reaped_at, r.failure_code, r.failure_reason,
    coalesce(r.input, (select i.input from semel.run_input as i
                       where i.project_id = r.project_id and i.run_id = r.run_id)) as input,
    null::jsonb as result,
    coalesce((select jsonb_agg(jsonb_build_object('step', s.step_key, 'kind', s.kind, 'entry', s.entry,
                'attempt', s.attempt, 'content', s.content, 'at', s.recorded_at) order by s.position)
              from semel.step as s where s.project_id = r.project_id and s.run_id = r.run_id), '[]') as saga_steps,
    r.source, r.event_id, r.parent_run_id,
    r.ready_at, r.due_at, r.deadline_at, r.unique_key, r.created_at,
    coalesce(r.started_at, r.claimed_at) as started_at, null::timestamptz as finished_at,
    r.kind, r.version, null::text as undo, r.batch, r.concurrency_key, r.lane >= 200 as key_full
from semel.run as r
union all
select h.project_id, h.run_id, h.agent, h.status, h.priority::int, h.attempt_count,
    coalesce(h.max_attempts, 3), h.fence, h.worker_id, null::timestamptz,
    greatest(h.heartbeat_at, h.claimed_at), h.reaped_at, h.failure_code, h.failure_reason,
    coalesce(h.input, (select i.input from semel.run_input as i
                       where i.project_id = h.project_id and i.run_id = h.run_id)), h.result,
    coalesce((select jsonb_agg(jsonb_build_object('step', s.step_key, 'kind', s.kind, 'entry', s.entry,
                'attempt', s.attempt, 'content', s.content, 'at', s.recorded_at) order by s.position)
              from semel.step as s where s.project_id = h.project_id and s.run_id = h.run_id), '[]'),
    h.source, h.event_id, h.parent_run_id,
    null::timestamptz, null::timestamptz, h.deadline_at, h.unique_key, h.created_at,
    coalesce(h.started_at, h.claimed_at), h.finished_at,
    h.kind, h.version, h.undo, h.batch, h.concurrency_key, false
from semel.run_history as h;

-- Attempts, one row for each claim: the one running, those that ended early, and the one that
-- completed its run (which history records itself).
create or replace view semel.attempts as
select r.project_id, r.run_id, r.attempt_count as attempt, r.fence, r.worker_id, 'running'::text as outcome,
    null::text as code, null::text as reason, r.claimed_at, null::timestamptz as ended_at
from semel.run as r where r.worker_id is not null
union all
select a.project_id, a.run_id, a.attempt, a.fence, a.worker_id, a.outcome, a.code, a.reason, a.claimed_at, a.ended_at
from semel.attempt as a
union all
select h.project_id, h.run_id, h.attempt_count, h.fence, h.worker_id, 'completed', null, null, h.claimed_at, h.finished_at
from semel.run_history as h where h.status = 'COMPLETED';

create or replace view semel.steps as
select s.project_id, s.run_id, s.position, s.step_key, s.entry, s.kind, s.attempt, s.fence, s.worker_id, s.content, s.recorded_at
from semel.step as s;

-- What events say of a run: the one that made it, and later ones that speak of it.
create or replace view semel.run_events as
select r.project_id, r.run_id, r.event_id, 'made'::text as relation, d.source, d.provider_event_id,
    d.first_seen_at, d.last_seen_at, d.hits, null::jsonb as content
from semel.runs as r join semel.dedupe as d on d.project_id = r.project_id and d.event_id = r.event_id
union all
select l.project_id, l.run_id, l.event_id, l.relation, d.source, d.provider_event_id,
    coalesce(d.first_seen_at, l.linked_at), d.last_seen_at, d.hits, l.content
from semel.event_link as l left join semel.dedupe as d on d.project_id = l.project_id and d.event_id = l.event_id;
