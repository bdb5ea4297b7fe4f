create or replace view semel.agents as
select a.project_id, a.agent, a.max_attempts, a.executor, a.max_running, a.paused_at, a.seen_at, a.joins
from semel.agent as a;

-- Workers. `silent` is what the reaper will call dead once dead_after has passed; `versions` are
-- agent@version, of the agents that have one.
create or replace view semel.workers as
select w.project_id, w.worker_id, w.host, w.pid, w.agents, w.slots, w.started_at, w.beat_at, w.stopped_at,
    (select count(*) from semel.run as r where r.project_id = w.project_id and r.worker_id = w.worker_id) as held,
    clock_timestamp() - w.beat_at as silent, w.versions
from semel.worker as w;
