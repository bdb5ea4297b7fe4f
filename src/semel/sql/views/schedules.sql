-- Schedules, as they are in force. next_at is the next tick where upkeep has worked it out; its run starts
-- at look_at, which is later by its jitter. source: whose word it is now, the code's or an operator's.
create or replace view semel.schedules as
select s.project_id, s.schedule, e.spec ->> 'cron' as cron, (e.spec ->> 'every')::int as every_seconds,
    e.spec ->> 'timezone' as timezone, e.spec ->> 'agent' as agent, e.spec -> 'input' as input,
    (e.spec ->> 'priority')::int as priority, e.spec ->> 'catch_up' as catch_up, (e.spec ->> 'catch_up_max')::int as catch_up_max,
    e.spec ->> 'overlap' as overlap, (e.spec ->> 'jitter')::float8 as jitter_seconds,
    case when s.edit is null then 'code' else 'operator' end as source,
    case when s.paused_at is not null then 'paused' when s.look_at is null then 'withdrawn' else 'active' end as state,
    s.program, s.tick_at as next_at, s.look_at, s.last_tick_at, s.last_fired_at, s.last_run_id, s.fired_count, s.missed_count, s.skipped_count, s.error,
    case when s.edit is not null then s.code end as code, s.revision, s.created_at, s.edited_at, s.paused_at, s.withdrawn_at
from semel.schedule as s cross join lateral (select coalesce(s.edit, s.code) as spec) as e;
