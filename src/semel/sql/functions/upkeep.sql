-- Upkeep: which projects to look after, and room for what is appended.
--
-- Locks: none of its own.
-- Clock: p_now, or the server's.

-- What each project needs now: the second read across projects. A thousand idle projects are a
-- thousand index probes in ten minutes and nothing more. held: has leased runs to judge, or some
-- that wait for their key; due: delayed runs or deadlines; purge: not purged for p_purge_every.
create or replace function semel.due_projects(
    p_purge_every interval default '10 minutes', p_limit int default 10000, p_now timestamptz default null
) returns table (project_id text, held boolean, due boolean, purge boolean)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    return query
        with recursive held as (
            (select r.project_id from semel.run as r where r.worker_id is not null order by r.project_id limit 1)
            union all
            select n.project_id from held as h cross join lateral (
                select r.project_id from semel.run as r
                where r.worker_id is not null and r.project_id > h.project_id order by r.project_id limit 1) as n
        ), keyed as (
            (select r.project_id from semel.run as r
             where r.concurrency_key is not null and (r.worker_id is not null or r.lane >= 200)
             order by r.project_id limit 1)
            union all
            select n.project_id from keyed as k cross join lateral (
                select r.project_id from semel.run as r
                where r.concurrency_key is not null and (r.worker_id is not null or r.lane >= 200)
                  and r.project_id > k.project_id
                order by r.project_id limit 1) as n
        ), due as (
            (select r.project_id, r.agent, r.due_at from semel.run as r where r.due_at is not null
             order by r.project_id, r.agent, r.due_at limit 1)
            union all
            select n.project_id, n.agent, n.due_at from due as d cross join lateral (
                select r.project_id, r.agent, r.due_at from semel.run as r
                where r.due_at is not null and (r.project_id, r.agent) > (d.project_id, d.agent)
                order by r.project_id, r.agent, r.due_at limit 1) as n
        ), overdue as (
            (select r.project_id, r.deadline_at from semel.run as r where r.deadline_at is not null
             order by r.project_id, r.deadline_at limit 1)
            union all
            select n.project_id, n.deadline_at from overdue as o cross join lateral (
                select r.project_id, r.deadline_at from semel.run as r
                where r.deadline_at is not null and r.project_id > o.project_id
                order by r.project_id, r.deadline_at limit 1) as n
        ), seen as (
            (select d.project_id from semel.dedupe as d order by d.project_id limit 1)
            union all
            select n.project_id from seen as s cross join lateral (
                select d.project_id from semel.dedupe as d
                where d.project_id > s.project_id order by d.project_id limit 1) as n
        ), journaled as (
            (select j.project_id from semel.journal_pending as j order by j.project_id limit 1)
            union all
            select n.project_id from journaled as s cross join lateral (
                select j.project_id from semel.journal_pending as j
                where j.project_id > s.project_id order by j.project_id limit 1) as n
        ), asked as (
            (select o.project_id from semel.operation as o order by o.project_id limit 1)
            union all
            select n.project_id from asked as a cross join lateral (
                select o.project_id from semel.operation as o
                where o.project_id > a.project_id order by o.project_id limit 1) as n
        ), need as (
            select h.project_id, true as held, false as due, false as purge from held as h
            union all select k.project_id, true, false, false from keyed as k
            union all select d.project_id, false, true, false from due as d where d.due_at <= v_now
            union all select o.project_id, false, true, false from overdue as o where o.deadline_at <= v_now
            union all select b.project_id, false, true, false from semel.batch as b
            where b.completed_at is null and b.digest is not null and not semel.batch_lives(b.project_id, b.batch)
            union all select s.project_id, false, false, true
            from (select d.project_id from seen as d union all select w.project_id from journaled as w
                  union all select j.project_id from semel.journal_project as j
                  union all select a.project_id from asked as a) as s
            where not exists (select from semel.project as p where p.project_id = s.project_id
                              and p.purged_at > v_now - p_purge_every and p.purged_at <= v_now)
            union all select p.project_id, false, false, true from semel.project as p
            where p.purged_at is null or (p.purged_at <= v_now - p_purge_every or p.purged_at > v_now)
        )
        select n.project_id, bool_or(n.held), bool_or(n.due), bool_or(n.purge)
        from need as n group by n.project_id limit p_limit;
end
$$;

-- Take the purge of p_project for this interval; one of many upkeeps is told true.
create or replace function semel.purge_take(
    p_project text, p_every interval default '10 minutes', p_now timestamptz default null
) returns boolean
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    if not exists (select from semel.project as p where p.project_id = p_project) then
        insert into semel.project (project_id, created_at) values (p_project, v_now)
        on conflict on constraint project_pkey do nothing;
    end if;
    update semel.project as p set purged_at = v_now
    where p.project_id = (
        select o.project_id from semel.project as o
        where o.project_id = p_project
          and (o.purged_at is null or o.purged_at <= v_now - p_every or o.purged_at > v_now)
        for update skip locked);
    return found;
end
$$;

-- Forget ids whose last sighting is p_memory ago, and alerts with them; p_limit rows at most.
-- An open episode is not forgotten: the alert may still fire.
create or replace function semel.dedupe_expire(
    p_project text, p_memory interval, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with old as materialized (
        select d.dedupe_key from semel.dedupe as d
        where d.project_id = p_project and d.event_id < semel.uuid_floor(v_now - p_memory + interval '1 second')
          and d.last_seen_at <= v_now - p_memory
          and not exists (select from semel.fold as f where f.project_id = p_project and f.source = d.source
                          and f.event_key = d.dedupe_key and f.status = 'firing')
        order by d.event_id limit p_limit
        for update skip locked
    ), gone as (
        delete from semel.dedupe as d using old as o
        where d.project_id = p_project and d.dedupe_key = o.dedupe_key
        returning 1
    )
    select count(*) into v_count from gone;
    with old as materialized (
        select f.source, f.fingerprint from semel.fold as f
        where f.project_id = p_project and f.status = 'resolved' and f.seen_at <= v_now - p_memory
        for update skip locked
    )
    delete from semel.fold as f using old as o
    where f.project_id = p_project and f.source = o.source and f.fingerprint = o.fingerprint;
    return v_count;
end
$$;

-- Close the episodes of alerts that nobody has spoken of for p_after; answers how many. Of the sources
-- p_only, or of all but p_but.
create or replace function semel.fold_stale(
    p_project text, p_after interval default '30 days', p_limit int default 1000, p_now timestamptz default null,
    p_only text[] default null, p_but text[] default '{}'
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with stale as materialized (
        select f.source, f.fingerprint from semel.fold as f
        where f.project_id = p_project and f.status = 'firing' and f.seen_at <= v_now - p_after
          and (p_only is null or f.source = any (p_only)) and f.source <> all (p_but)
        order by f.source, f.fingerprint limit p_limit
        for update skip locked
    ), closed as (
        -- As of the last sighting, so that a firing after it is judged without grace.
        update semel.fold as f set status = 'resolved', changed_at = f.seen_at, stale_count = f.stale_count + 1
        from stale as s
        where f.project_id = p_project and f.source = s.source and f.fingerprint = s.fingerprint
        returning 1
    )
    select count(*) into v_count from closed;
    return v_count;
end
$$;

-- Drop what no longer belongs to anything: raw bodies p_bodies after their last delivery, and what
-- was kept beside runs that are gone. p_limit rows of each at most; answers how many.
create or replace function semel.leftovers_drop(
    p_project text, p_bodies interval, p_runs interval, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    -- A run's id begins with its start: no run that young can be gone.
    v_below uuid := semel.uuid_floor(v_now - p_runs);
    v_count int;
begin
    perform semel.project_require(p_project);
    -- seen_at moves at most daily, so a body may have been delivered a day later than it says.
    with gone as (
        delete from semel.body as b where b.project_id = p_project and b.body_digest = any (array(
            select o.body_digest from semel.body as o
            where o.project_id = p_project and o.seen_at <= v_now - p_bodies - interval '1 day'
            limit p_limit
            for update skip locked))
        returning 1
    )
    select count(*) into v_count from gone;
    return v_count + semel.orphans_drop(p_project, v_below, p_limit);
end
$$;

-- Drop what is kept beside runs below p_below that are gone, and so are their compensations, which
-- work from it; p_limit rows of each table at most. Answers how many. Named by their place, which a
-- locked row keeps. Internal.
create or replace function semel.orphans_drop(p_project text, p_below uuid, p_limit int) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_table text;
    v_count int;
    v_total int := 0;
begin
    -- What hangs on an approval goes with it.
    with lone as materialized (
        select a.approval_id from semel.approval as a
        where a.project_id = p_project and a.run_id < p_below
          and not exists (select from semel.run as r where r.project_id = p_project and r.run_id = a.run_id)
          and not exists (select from semel.run_history as h where h.project_id = p_project and h.run_id = a.run_id)
        order by a.run_id limit p_limit
    ), tokens as (
        delete from semel.approval_token as t using lone as l
        where t.project_id = p_project and t.approval_id = l.approval_id
        returning 1
    ), votes as (
        delete from semel.approval_vote as v using lone as l
        where v.project_id = p_project and v.approval_id = l.approval_id
        returning 1
    ), gone as (
        delete from semel.approval as a using lone as l
        where a.project_id = p_project and a.approval_id = l.approval_id
        returning 1
    )
    select (select count(*) from tokens) + (select count(*) from votes) + (select count(*) from gone) into v_total;
    foreach v_table in array array['run_input', 'step', 'event_link', 'wait', 'signal', 'tool', 'tool_token'] loop
        execute format(
            'with gone as ('
            '    delete from semel.%1$I as i where i.project_id = $1 and i.ctid = any (array('
            '        select o.ctid from semel.%1$I as o'
            '        where o.project_id = $1 and o.run_id < $2'
            '          and not exists (select from semel.run as r where r.project_id = $1 and r.run_id in (o.run_id, semel.undo_of(o.run_id)))'
            '          and not exists (select from semel.run_history as h where h.project_id = $1 and h.run_id in (o.run_id, semel.undo_of(o.run_id)))'
            '        order by o.run_id limit $3'
            '        for update of o skip locked))'
            '    returning 1'
            ') select count(*) from gone', v_table)
        into v_count using p_project, p_below, p_limit;
        v_total := v_total + v_count;
    end loop;
    return v_total;
end
$$;

-- Forget workers that stopped or fell silent a day ago and hold nothing.
create or replace function semel.worker_expire(p_project text, p_now timestamptz default null) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with gone as (
        delete from semel.worker as w
        where w.project_id = p_project and w.worker_id = any (array(
            select o.worker_id from semel.worker as o
            where o.project_id = p_project and o.beat_at < v_now - interval '1 day'
              and not exists (select from semel.run as r where r.project_id = p_project
                              and r.agent = any (o.agents) and r.worker_id = o.worker_id)
            for update of o skip locked))
        returning 1
    )
    select count(*) into v_count from gone;
    return v_count;
end
$$;

-- Drop the partitions that ended p_keep ago (runs, attempts and deliveries each have theirs), and
-- old rows of the rest partitions. Runs whose id is still remembered move to the rest partition:
-- a run is not purged before its dedupe row. Answers the partitions dropped.
-- Whoever reads them for long, such as a report, is not waited for: a waiting `detach` would keep
-- every completion behind it. 55P03 then; the next call does it.
create or replace function semel.partitions_drop(
    p_runs interval, p_deliveries interval, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '200ms' as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_keep  record;
    v_part  text;
    v_drops int := 0;
begin
    for v_keep in
        select * from (values ('run_history', p_runs), ('attempt', p_runs * 2), ('delivery', p_deliveries)) as k(name, keep)
    loop
        for v_part in
            select c.relname from pg_class as c join pg_inherits as i on i.inhrelid = c.oid
            where i.inhparent = ('semel.' || v_keep.name)::regclass and c.relname ~ '_[0-9]{8}$'
              and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= ((v_now - v_keep.keep) at time zone 'UTC')::date
            order by c.relname
        loop
            execute format('alter table semel.%I detach partition semel.%I', v_keep.name, v_part);
            if v_keep.name = 'run_history' then
                execute format('insert into semel.run_history select h.* from semel.%I as h where exists ('
                    'select from semel.dedupe as d where d.project_id = h.project_id and d.event_id = h.event_id)', v_part);
            end if;
            execute format('drop table semel.%I', v_part);
            v_drops := v_drops + 1;
        end loop;
    end loop;
    delete from semel.run_history_rest as h where (h.project_id, h.run_id, h.finished_at) in (
        select o.project_id, o.run_id, o.finished_at from semel.run_history_rest as o
        where o.finished_at < v_now - p_runs and not exists (
            select from semel.dedupe as d where d.project_id = o.project_id and d.event_id = o.event_id)
        limit p_limit);
    delete from semel.attempt_rest as a where a.ended_at < v_now - p_runs * 2;
    delete from semel.delivery_rest as d where d.received_at < v_now - p_deliveries;
    return v_drops;
end
$$;

-- Make the daily partitions of the append-only tables from yesterday to p_days ahead.
-- Answers how many were new. Rows that came before their partition wait in the rest partition: they
-- move into it, but for yesterday's, which stay there until their time is up. Waits for no one, as
-- partitions_drop.
create or replace function semel.partitions_make(p_days int default 7, p_now timestamptz default null) returns int
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '200ms' as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_today date := (v_now at time zone 'UTC')::date;
    v_day   date;
    v_table text;
    v_at    text;
    v_name  text;
    v_from  timestamptz;
    v_to    timestamptz;
    v_early boolean;
    v_made  int := 0;
begin
    for v_table, v_at, v_day in
        select t.name, t.at, d::date
        from (values ('run_history', 'finished_at'), ('attempt', 'ended_at'), ('delivery', 'received_at')) as t(name, at)
        cross join generate_series(v_today - 1, v_today + p_days, interval '1 day') as d
        order by t.name, d
    loop
        v_name := format('%s_%s', v_table, to_char(v_day, 'YYYYMMDD'));
        continue when to_regclass('semel.' || v_name) is not null;
        v_from := v_day::timestamp at time zone 'UTC';
        v_to := v_from + interval '24 hours';
        execute format('select exists (select from semel.%I as o where o.%I >= $1 and o.%2$I < $2)', v_table || '_rest', v_at)
        into v_early using v_from, v_to;
        continue when v_early and v_day < v_today;
        if not v_early then
            execute format('create table semel.%I partition of semel.%I for values from (%L) to (%L)',
                           v_name, v_table, v_from, v_to);
        else
            -- No partition can be made over rows that are elsewhere.
            execute format('lock table semel.%I in access exclusive mode', v_table || '_rest');
            execute format('create table semel.%I (like semel.%I including all)', v_name, v_table);
            execute format('with early as (delete from semel.%I as o where o.%I >= $1 and o.%2$I < $2 returning o.*)'
                           ' insert into semel.%3$I select * from early', v_table || '_rest', v_at, v_name)
            using v_from, v_to;
            execute format('alter table semel.%I attach partition semel.%I for values from (%L) to (%L)',
                           v_table, v_name, v_from, v_to);
        end if;
        v_made := v_made + 1;
    end loop;
    return v_made;
end
$$;

-- When upkeep last came to p_project, to sweep it or to purge it, and how long ago that is; no
-- row for a project that it has not met.
create or replace function semel.upkeep_status(p_project text, p_now timestamptz default null)
returns table (swept_at timestamptz, purged_at timestamptz, blind_until timestamptz, silent interval)
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    return query
        select p.swept_at, p.purged_at, p.blind_until, v_now - greatest(p.swept_at, p.purged_at)
        from semel.project as p where p.project_id = p_project;
end
$$;
