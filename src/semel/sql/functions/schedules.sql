-- Schedules: said by code and by operators, looked at and fired by upkeep.
--
--   seed (code), set (operator) ──> looked at ──due──> fire: one run for a tick ──> looked at again
--      pause, withdrawn ──> rests ──resume, said again──^        (behind the last tick, never before)
--
-- What is in force is the edit, or the code where there is none. Which moments are ticks is worked
--   out by whoever calls; what a tick makes, and that it makes it once, is decided here.
-- Fence: (project, schedule, revision, tick). Firing moves the tick on in the transaction that starts
--   the run, so whoever comes second finds another tick. A run's key names its tick as well, so a
--   schedule that was deleted and made again fires no tick twice while ids are remembered.
-- Locks: schedule by name, then what starting a run locks. Firing skips what another holds.
-- Clock: p_now, or the server's, read once. It never moves a tick back.

-- Refuse a schedule that is no name.
create or replace function semel.schedule_require(p_schedules text[]) returns void
language plpgsql immutable set search_path = pg_catalog as $$
declare
    v_name text;
begin
    foreach v_name in array p_schedules loop
        if v_name is null or v_name !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$' then
            raise exception using
                errcode = 'SMH01',
                message = format('%L is no schedule', left(coalesce(v_name, ''), 150)),
                hint = 'A schedule is 1 to 128 of A-Z, a-z, 0-9, _, . and -.';
        end if;
    end loop;
end
$$;

-- Refuse a spec that could not start a run. Whether its expression and its zone are any is for those
-- to say who know them.
create or replace function semel.spec_require(p_specs jsonb[]) returns void
language plpgsql immutable set search_path = pg_catalog as $$
declare
    v_spec jsonb;
begin
    foreach v_spec in array p_specs loop
        perform semel.agent_require(v_spec ->> 'agent');
        if coalesce(jsonb_typeof(v_spec -> 'input'), '') <> 'object' or v_spec -> 'input' ? 'schedule'
           or coalesce((v_spec ->> 'priority')::int not between 0 and 9, true)
           or starts_with(v_spec ->> 'agent', 'semel.')
           or (v_spec ->> 'cron' is null) = (v_spec ->> 'every' is null) then
            raise exception using
                errcode = 'SMH01',
                message = 'a schedule that says what it cannot',
                hint = 'Its input is an object without a member schedule; it has cron or every; its agent is not Semel''s own.';
        end if;
    end loop;
end
$$;

-- Whether two specs have the same ticks. Null is a spec that has none.
create or replace function semel.spec_ticks_alike(p_one jsonb, p_other jsonb) returns boolean
language sql immutable set search_path = pg_catalog as $$
    select jsonb_build_array(p_one -> 'cron', p_one -> 'every', p_one -> 'timezone', p_one -> 'jitter')
        is not distinct from jsonb_build_array(p_other -> 'cron', p_other -> 'every', p_other -> 'timezone', p_other -> 'jitter')
$$;

-- From when on ticks count: p_now, and no tick that was fired comes again by a clock that stepped back. A
-- last tick that is hours ahead was fired by a clock that was wrong: to wait for it would be worse, and
-- the keys of its runs hold too.
create or replace function semel.tick_floor(p_now timestamptz, p_last timestamptz) returns timestamptz
language sql immutable set search_path = pg_catalog as $$
    select case when p_last <= p_now + interval '6 hours' then greatest(p_now, p_last) else p_now end
$$;

-- What the code of p_program says, all of it: what it said before and says no more is withdrawn. An
-- operator's edit stays in force. Answers what changed: new, changed, edited (only what is under an
-- edit changed), taken (another program said it before) or withdrawn.
create or replace function semel.schedule_seed(
    p_project text, p_program text, p_schedules text[], p_specs text[], p_now timestamptz default null
) returns table (schedule text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_specs jsonb[] := coalesce((select array_agg(s.spec::jsonb order by s.n)
                                 from unnest(p_specs) with ordinality as s(spec, n)), '{}');
begin
    perform semel.project_require(p_project);
    perform semel.schedule_require(p_schedules);
    perform semel.spec_require(v_specs);
    perform from semel.schedule as s
    where s.project_id = p_project and (s.schedule = any (p_schedules) or s.program = p_program)
    order by s.schedule
    for update;
    return query
        with said as materialized (
            select x.schedule, x.spec from unnest(p_schedules, v_specs) as x(schedule, spec)
        ), made as (
            insert into semel.schedule as s (project_id, schedule, code, program, look_at, after_at, created_at)
            select p_project, d.schedule, d.spec, p_program, v_now, v_now, v_now from said as d
            order by d.schedule
            on conflict on constraint schedule_pkey do nothing
            returning s.schedule
        ), heard as (
            update semel.schedule as s set
                code = d.spec, program = p_program, withdrawn_at = null,
                revision = s.revision + case when s.edit is null then 1 else 0 end,
                error = case when s.edit is null then null else s.error end,
                tick_at = case when s.edit is not null or k.goes_on then s.tick_at end,
                after_at = case when s.edit is not null or k.goes_on then s.after_at
                                else semel.tick_floor(v_now, s.last_tick_at) end,
                look_at = case when s.edit is not null or k.goes_on then s.look_at
                               when s.paused_at is null then v_now end
            from said as d
            cross join lateral (
                select o.code, o.edit, o.program as before,
                    o.withdrawn_at is null and semel.spec_ticks_alike(o.code, d.spec) as goes_on
                from semel.schedule as o where o.project_id = p_project and o.schedule = d.schedule) as k
            where s.project_id = p_project and s.schedule = d.schedule
              and (s.code is distinct from d.spec or s.program is distinct from p_program or s.withdrawn_at is not null)
            returning s.schedule,
                case when k.before <> p_program then 'taken' when k.edit is not null then 'edited' else 'changed' end as outcome
        ), gone as (
            update semel.schedule as s set
                withdrawn_at = v_now,
                tick_at = case when s.edit is not null then s.tick_at end,
                look_at = case when s.edit is not null then s.look_at end
            where s.project_id = p_project and s.program = p_program and s.withdrawn_at is null
              and s.schedule <> all (p_schedules)
            returning s.schedule
        )
        select m.schedule, 'new' from made as m
        union all select h.schedule, h.outcome from heard as h
        union all select g.schedule, 'withdrawn' from gone as g
        order by 1;
end
$$;

-- An operator's edit: in force from now on, whatever the code says. p_revision: of the schedule that
-- was edited; null: there was none. outcome: new, won, or lost (it is another one by now).
create or replace function semel.schedule_set(
    p_project text, p_schedule text, p_spec text, p_revision bigint default null, p_now timestamptz default null
) returns table (schedule text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_spec jsonb := p_spec::jsonb;
begin
    perform semel.project_require(p_project);
    perform semel.schedule_require(array[p_schedule]);
    perform semel.spec_require(array[v_spec]);
    if p_revision is null then
        insert into semel.schedule (project_id, schedule, edit, look_at, after_at, edited_at, created_at)
        values (p_project, p_schedule, v_spec, v_now, v_now, v_now, v_now)
        on conflict on constraint schedule_pkey do nothing;
        return query select p_schedule, case when found then 'new' else 'lost' end;
        return;
    end if;
    perform semel.schedule_enforce(p_project, p_schedule, v_spec, p_revision, v_now);
    return query select p_schedule, case when exists (
        select from semel.schedule as s
        where s.project_id = p_project and s.schedule = p_schedule and s.revision = p_revision + 1 and s.edit = v_spec)
        then 'won' else 'lost' end;
end
$$;

-- Put an edit in force, or with null what the code says; at p_revision only. The tick that comes next
-- stays where both have the same ticks. Internal.
create or replace function semel.schedule_enforce(
    p_project text, p_schedule text, p_edit jsonb, p_revision bigint, p_now timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_old     semel.schedule;
    v_wanted  boolean;
    v_goes_on boolean;
begin
    select s.* into v_old from semel.schedule as s
    where s.project_id = p_project and s.schedule = p_schedule and s.revision = p_revision
    for update;
    if not found then
        return;
    end if;
    v_wanted := v_old.paused_at is null and (p_edit is not null or v_old.withdrawn_at is null);
    v_goes_on := v_wanted and v_old.look_at is not null
        and semel.spec_ticks_alike(coalesce(v_old.edit, v_old.code), coalesce(p_edit, v_old.code));
    update semel.schedule as s set
        edit = p_edit, edited_at = case when p_edit is not null then p_now end,
        revision = s.revision + 1, error = null,
        tick_at = case when v_goes_on then s.tick_at end,
        after_at = case when v_goes_on then s.after_at else semel.tick_floor(p_now, s.last_tick_at) end,
        look_at = case when v_goes_on then s.look_at when v_wanted then p_now end
    where s.project_id = p_project and s.schedule = p_schedule;
end
$$;

-- Give a schedule back to the code. outcome: won, already (no edit), refused (no code says it) or unknown.
create or replace function semel.schedule_clear(p_project text, p_schedule text, p_now timestamptz default null)
returns table (schedule text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_old semel.schedule;
begin
    perform semel.project_require(p_project);
    select s.* into v_old from semel.schedule as s
    where s.project_id = p_project and s.schedule = p_schedule
    for update;
    if v_old.edit is not null and v_old.code is not null then
        perform semel.schedule_enforce(p_project, p_schedule, null, v_old.revision, v_now);
    end if;
    return query select p_schedule, case
        when v_old.revision is null then 'unknown'
        when v_old.code is null then 'refused'
        when v_old.edit is null then 'already'
        else 'won' end;
end
$$;

-- Forget a schedule that no code says. outcome: won, refused (a program says it) or unknown.
create or replace function semel.schedule_delete(p_project text, p_schedule text)
returns table (schedule text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    delete from semel.schedule as s
    where s.project_id = p_project and s.schedule = p_schedule and (s.code is null or s.withdrawn_at is not null);
    if found then
        return query select p_schedule, 'won';
        return;
    end if;
    return query select p_schedule, case when exists (
        select from semel.schedule as s where s.project_id = p_project and s.schedule = p_schedule)
        then 'refused' else 'unknown' end;
end
$$;

-- Fire nothing until it is resumed. outcome: won, already or unknown.
create or replace function semel.schedule_pause(p_project text, p_schedule text, p_now timestamptz default null)
returns table (schedule text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.schedule as s set paused_at = v_now, tick_at = null, look_at = null
    where s.project_id = p_project and s.schedule = p_schedule and s.paused_at is null;
    return query select p_schedule, case when found then 'won' when exists (
        select from semel.schedule as s where s.project_id = p_project and s.schedule = p_schedule)
        then 'already' else 'unknown' end;
end
$$;

-- Fire again, from the first tick later than now: what the pause held back does not come.
-- outcome: won, already or unknown.
create or replace function semel.schedule_resume(p_project text, p_schedule text, p_now timestamptz default null)
returns table (schedule text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.schedule as s set
        paused_at = null, error = null, after_at = semel.tick_floor(v_now, s.last_tick_at),
        look_at = case when s.edit is not null or s.withdrawn_at is null then v_now end
    where s.project_id = p_project and s.schedule = p_schedule and s.paused_at is not null;
    return query select p_schedule, case when found then 'won' when exists (
        select from semel.schedule as s where s.project_id = p_project and s.schedule = p_schedule)
        then 'already' else 'unknown' end;
end
$$;

-- How long until a schedule of any project is to be looked at; null: none is. It is not above zero
-- when one is due. A read across projects, of one index entry for each.
create or replace function semel.schedule_next(p_now timestamptz default null) returns interval
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    return (
        with recursive first as (
            (select s.project_id, s.look_at from semel.schedule as s where s.look_at is not null
             order by s.project_id, s.look_at limit 1)
            union all
            select n.project_id, n.look_at from first as f cross join lateral (
                select s.project_id, s.look_at from semel.schedule as s
                where s.look_at is not null and s.project_id > f.project_id
                order by s.project_id, s.look_at limit 1) as n
        )
        select min(f.look_at) - v_now from first as f);
end
$$;

-- The schedules of any project that are due, those of one project together, and the moment they are
-- judged by; p_limit of each project. A read across projects.
create or replace function semel.schedule_due(p_limit int default 1000, p_now timestamptz default null)
returns table (project_id text, schedule text, spec jsonb, revision bigint,
               tick_at timestamptz, after_at timestamptz, now_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    return query
        with recursive first as (
            (select s.project_id, s.look_at from semel.schedule as s where s.look_at is not null
             order by s.project_id, s.look_at limit 1)
            union all
            select n.project_id, n.look_at from first as f cross join lateral (
                select s.project_id, s.look_at from semel.schedule as s
                where s.look_at is not null and s.project_id > f.project_id
                order by s.project_id, s.look_at limit 1) as n
        )
        select f.project_id, d.schedule, coalesce(d.edit, d.code), d.revision, d.tick_at, d.after_at, v_now
        from first as f cross join lateral (
            select s.* from semel.schedule as s
            where s.project_id = f.project_id and s.look_at <= v_now
            order by s.look_at limit p_limit) as d
        where f.look_at <= v_now
        order by f.project_id, d.look_at;
end
$$;
