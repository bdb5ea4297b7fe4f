-- Tool calls, one row each: by which step of which run, made by the run call_id.
create or replace view semel.tools as
select t.project_id, t.call_id, t.run_id, t.step_key, t.server, t.tool, t.tool_key as idempotency_key, t.state, t.repeatable,
    t.sends, t.via, t.asked_at, t.sent_at, t.answered_at,
    (select w.due_at from semel.wait as w
     where w.project_id = t.project_id and w.run_id = t.run_id and w.step_key = t.step_key) as due_at
from semel.tool as t;
