-- Agents, with the limits in force. rate_left: claims that their rate leaves now; key_limit: runs of one
-- concurrency key at once, null one; edits: which of concurrency, rate and per_limit an operator has set.
create or replace view semel.agents as
select a.project_id, a.agent, a.max_attempts, a.executor, a.max_running, a.paused_at, a.seen_at, a.joins,
    a.rate_claims, a.rate_span,
    case when a.rate_claims is not null then
        coalesce((select (semel.bucket_fill(b, a.rate_claims, a.rate_span, clock_timestamp())).level / semel.span_us(a.rate_span)
                  from semel.agent_bucket as b where b.project_id = a.project_id and b.agent = a.agent), a.rate_claims)::int
    end as rate_left,
    a.key_path, a.key_limit, a.edits
from semel.agent as a;

-- Workers. `silent` is what the reaper will call dead once dead_after has passed; `versions` are
-- agent@version, of the agents that have one; `slots` are those in force.
create or replace view semel.workers as
select w.project_id, w.worker_id, w.host, w.pid, w.agents, coalesce(w.slots_told, w.slots) as slots, w.started_at, w.beat_at, w.stopped_at,
    (select count(*) from semel.run as r where r.project_id = w.project_id and r.worker_id = w.worker_id) as held,
    clock_timestamp() - w.beat_at as silent, w.versions, w.draining_at, w.drained_at, w.slots_told
from semel.worker as w;
