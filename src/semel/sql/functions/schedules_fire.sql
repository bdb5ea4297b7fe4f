-- Firing: the one place where a tick becomes a run. See schedules.sql for states, fence and locks.

-- Carry out what a look at schedules of p_project came to. p_plans is a list of {"schedule", "revision",
-- "tick_at" (as it was looked at, or null), "fire": [ticks], "missed", "next_at", "look_at"}, or with
-- "error" instead of the last four: looked at again at its "look_at". Each plan is a compare-and-set on
-- revision and tick: one that is another's by now, or held by another, changes nothing and is told lost.
-- One row for each tick, fired, skipped (the run before is live) or duplicate (its run is known
-- already), and for each plan that was lost.
create or replace function semel.schedule_fire(
    p_project text, p_plans text, p_memory interval default '7 days', p_now timestamptz default null
) returns table (schedule text, tick_at timestamptz, outcome text, agent text, run_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_plan    jsonb;
    v_row     semel.schedule;
    v_spec    jsonb;
    v_tick    timestamptz;
    v_started record;
    v_outcome text;
    v_fired   int;
    v_skipped int;
begin
    perform semel.project_require(p_project);
    for v_plan in
        select p.v from jsonb_array_elements(p_plans::jsonb) as p(v) order by p.v ->> 'schedule'
    loop
        select s.* into v_row from semel.schedule as s
        where s.project_id = p_project and s.schedule = v_plan ->> 'schedule'
          and s.revision = (v_plan ->> 'revision')::bigint
          and s.tick_at is not distinct from (v_plan ->> 'tick_at')::timestamptz
          and s.look_at is not null
        for update skip locked;
        if not found then
            return query select v_plan ->> 'schedule', null::timestamptz, 'lost', null::text, null::uuid;
            continue;
        end if;
        if v_plan ? 'error' then
            update semel.schedule as s set error = left(v_plan ->> 'error', 500), look_at = (v_plan ->> 'look_at')::timestamptz
            where s.project_id = p_project and s.schedule = v_row.schedule;
            continue;
        end if;
        v_spec := coalesce(v_row.edit, v_row.code);
        v_fired := 0;
        v_skipped := 0;
        for v_tick in select f.t::timestamptz from jsonb_array_elements_text(v_plan -> 'fire') with ordinality as f(t, n) order by f.n loop
            select r.run_id, r.outcome into v_started from semel.run_start(
                p_project, v_spec ->> 'agent',
                (v_spec -> 'input' || jsonb_build_object('schedule', jsonb_build_object(
                    'name', v_row.schedule, 'scheduled_at', semel.tick_text(v_tick),
                    'previous_at', semel.tick_text(v_row.last_fired_at), 'timezone', v_spec ->> 'timezone')))::text,
                p_key => format('schedule:%s:%s', v_row.schedule, semel.tick_text(v_tick)),
                p_source => 'semel.schedule',
                p_priority => (v_spec ->> 'priority')::int,
                p_unique => case when v_spec ->> 'overlap' = 'skip' then 'schedule:' || v_row.schedule end,
                p_memory => p_memory, p_now => p_now) as r;
            v_outcome := case v_started.outcome when 'new' then 'fired' when 'exists' then 'skipped' else 'duplicate' end;
            if v_outcome = 'skipped' then
                v_skipped := v_skipped + 1;
            else
                v_fired := v_fired + (v_outcome = 'fired')::int;
                v_row.last_fired_at := v_tick;
                v_row.last_run_id := v_started.run_id;
            end if;
            v_row.last_tick_at := v_tick;
            return query select v_row.schedule, v_tick, v_outcome, v_spec ->> 'agent', v_started.run_id;
        end loop;
        update semel.schedule as s set
            tick_at = (v_plan ->> 'next_at')::timestamptz, look_at = (v_plan ->> 'look_at')::timestamptz, error = null,
            last_tick_at = v_row.last_tick_at, last_fired_at = v_row.last_fired_at, last_run_id = v_row.last_run_id,
            fired_count = s.fired_count + v_fired, skipped_count = s.skipped_count + v_skipped,
            missed_count = s.missed_count + (v_plan ->> 'missed')::int
        where s.project_id = p_project and s.schedule = v_row.schedule;
    end loop;
end
$$;

-- A tick as runs and keys name it.
create or replace function semel.tick_text(p_tick timestamptz) returns text
language sql immutable set search_path = pg_catalog as $$
    select to_char(p_tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
$$;
