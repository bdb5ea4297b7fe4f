-- Reads of the ledger: which operations there are. What is in them, the view `operations` says.
--
-- Locks: none.
-- Clock: p_now, or the server's: where the newest are looked for first.

-- The newest operations of a project, optionally of one status or procedure; behind p_before, the
-- last one of the page before (none if it is gone). Looks into the last minute, then into twelve times as much, and
-- so on, so that a page of a long ledger costs what the page holds.
create or replace function semel.operation_newest(
    p_project text, p_status text default null, p_event_type text default null, p_before text default null,
    p_limit int default 50, p_now timestamptz default null
) returns table (created_at timestamptz, request_id text)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_top   timestamptz := 'infinity';
    v_floor timestamptz := coalesce(p_now, clock_timestamp());
    v_span  interval := '1 minute';
    v_found int;
    v_ids   text[];
    v_times timestamptz[];
begin
    perform semel.project_require(p_project);
    if p_before is not null then
        select o.created_at into v_top from semel.operation as o where o.project_id = p_project and o.request_id = p_before;
        v_floor := least(v_floor, v_top);
    end if;
    loop
        v_floor := case when v_span > interval '10 years' then '-infinity' else v_floor - v_span end;
        select count(*), coalesce(array_agg(f.request_id), '{}'), coalesce(array_agg(f.created_at), '{}')
        into v_found, v_ids, v_times from (
            select o.request_id, o.created_at from semel.operation as o
            where o.project_id = p_project and o.created_at >= v_floor and o.created_at <= v_top
              and (p_before is null or (o.created_at, o.request_id) < (v_top, p_before))
              and (p_status is null or o.status = p_status) and (p_event_type is null or o.event_type = p_event_type)
            order by o.created_at desc, o.request_id desc limit p_limit) as f;
        exit when v_found >= p_limit or v_floor = '-infinity' or v_top is null;
        v_span := v_span * 12;
    end loop;
    return query
        select f.created_at, f.request_id from unnest(v_times, v_ids) as f(created_at, request_id)
        order by f.created_at desc, f.request_id desc;
end
$$;

-- The operations of one key: p_base itself, and those whose id continues it with a colon, as a
-- procedure's path does; at most 200.
create or replace function semel.operation_of_key(p_project text, p_base text)
returns table (request_id text)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
begin
    perform semel.project_require(p_project);
    return query
        select f.request_id from (
            select o.request_id from semel.operation as o
            where o.project_id = p_project and o.request_id >= p_base order by o.request_id limit 200) as f
        where f.request_id = p_base or starts_with(f.request_id, p_base || ':')
        order by f.request_id;
end
$$;
