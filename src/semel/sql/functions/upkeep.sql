-- Upkeep: which projects to look after, and room for what is appended.
--
-- Locks: none of its own.
-- Clock: p_now, or the server's.

-- Projects that have a worker, a held run or a due run: the second read across projects.
create or replace function semel.due_projects(p_limit int default 10000) returns table (project_id text)
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    return query
        with recursive held as (
            (select r.project_id from semel.run as r where r.worker_id is not null order by r.project_id limit 1)
            union all
            select n.project_id from held as h cross join lateral (
                select r.project_id from semel.run as r
                where r.worker_id is not null and r.project_id > h.project_id order by r.project_id limit 1) as n
        ), due as (
            (select r.project_id from semel.run as r where r.due_at is not null order by r.project_id limit 1)
            union all
            select n.project_id from due as d cross join lateral (
                select r.project_id from semel.run as r
                where r.due_at is not null and r.project_id > d.project_id order by r.project_id limit 1) as n
        )
        select p.project_id from semel.project as p
        union select h.project_id from held as h
        union select d.project_id from due as d
        limit p_limit;
end
$$;

-- Make the daily partitions of the append-only tables from yesterday to p_days ahead.
-- Answers how many were new. Rows that come before their partition wait in the rest partition.
create or replace function semel.partitions_make(p_days int default 7, p_now timestamptz default null) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_day   date;
    v_table text;
    v_name  text;
    v_made  int := 0;
begin
    foreach v_table in array array['run_history', 'attempt', 'delivery'] loop
        for v_day in
            select d::date from generate_series((v_now at time zone 'UTC')::date - 1,
                                                (v_now at time zone 'UTC')::date + p_days, interval '1 day') as d
        loop
            v_name := format('%s_%s', v_table, to_char(v_day, 'YYYYMMDD'));
            continue when to_regclass('semel.' || v_name) is not null;
            execute format('create table semel.%I partition of semel.%I for values from (%L) to (%L)',
                           v_name, v_table, v_day || ' 00:00:00+00', v_day + 1 || ' 00:00:00+00');
            v_made := v_made + 1;
        end loop;
    end loop;
    return v_made;
end
$$;

-- When p_project was last swept, and until when a sweep judges no worker; no row for a project
-- that no sweep has met.
create or replace function semel.upkeep_status(p_project text, p_now timestamptz default null)
returns table (swept_at timestamptz, blind_until timestamptz, silent interval)
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    return query
        select p.swept_at, p.blind_until, v_now - p.swept_at from semel.project as p
        where p.project_id = p_project;
end
$$;
