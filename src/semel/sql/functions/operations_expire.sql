-- Retention of the ledger: an old reply becomes a tombstone, an old identity goes last, if ever.
--
--   SUCCEEDED with its reply ──results──> SUCCEEDED, gone ──operations──> nothing: may be executed again
--
-- One round after another over a project's operations in the order of their ids, a page at a time,
-- so that no index but the key is needed and every row is met once in each.
--
-- Locks: the project's sweep, operation by id; a row that is held is left for the next round.
-- Clock: p_now, or the server's.

-- Look at the next p_limit operations of p_project. Replies last changed p_results ago become
-- tombstones; p_operations (null: never) after the last change the identity goes, and with it what
-- was judged of it. Never by age: what is PROCESSING, what waits for a judgement, and another
-- system's. A round begins p_every after the last one began. looked: how many; less than p_limit
-- when the round is over, or is another's.
create or replace function semel.operation_expire(
    p_project text, p_results interval, p_operations interval default null, p_every interval default '1 day',
    p_limit int default 1000, p_now timestamptz default null
) returns table (looked int, tombstones int, deleted int)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_sweep semel.operation_sweep;
    v_ids   text[];
begin
    perform semel.project_require(p_project);
    if p_operations < interval '24 hours' then
        raise exception using errcode = 'SMQ01', message = format('operations kept for %s', p_operations),
            hint = 'At least 24 hours: deleting an operation permits a second execution.';
    end if;
    looked := 0;
    tombstones := 0;
    deleted := 0;
    if not exists (select from semel.operation_sweep as s where s.project_id = p_project) then
        insert into semel.operation_sweep (project_id, began_at) values (p_project, v_now)
        on conflict (project_id) do nothing;
    end if;
    select * into v_sweep from semel.operation_sweep as s where s.project_id = p_project for update skip locked;
    if not found or v_sweep.ended_at is not null and v_sweep.began_at > v_now - p_every and v_sweep.began_at <= v_now then
        return next;
        return;
    end if;
    if v_sweep.ended_at is not null then
        v_sweep.began_at := v_now;
        v_sweep.request_id := '';
    end if;
    select coalesce(array_agg(o.request_id order by o.request_id), '{}') into v_ids from (
        select o.request_id from semel.operation as o
        where o.project_id = p_project and o.request_id > v_sweep.request_id
        order by o.request_id limit p_limit) as o;
    looked := cardinality(v_ids);
    with old as materialized (
        select o.request_id from semel.operation as o
        where o.project_id = p_project and o.request_id = any (v_ids) and o.target = 'API'
          and o.updated_at <= v_now - p_operations
          and (semel.reconcile_kind(o.target, o.status, o.payload,
                   o.reply_status is not null or o.reply_body is not null, false) is null
               or exists (select from semel.judgement as j where j.project_id = p_project
                          and j.request_id = o.request_id and j.judged_at = o.updated_at))
        order by o.request_id
        for update of o skip locked
    ), judged as (
        delete from semel.judgement as j using old where j.project_id = p_project and j.request_id = old.request_id
    ), gone as (
        delete from semel.operation as o using old where o.project_id = p_project and o.request_id = old.request_id
        returning 1
    )
    select count(*) into deleted from gone;
    with old as materialized (
        select o.request_id from semel.operation as o
        where o.project_id = p_project and o.request_id = any (v_ids) and o.target = 'API'
          and o.status = 'SUCCEEDED' and not o.gone and o.updated_at <= v_now - p_results
        order by o.request_id
        for update of o skip locked
    ), made as (
        update semel.operation as o set gone = true, reply_headers = null, reply_body = null
        from old where o.project_id = p_project and o.request_id = old.request_id
        returning 1
    )
    select count(*) into tombstones from made;
    update semel.operation_sweep as s set
        began_at = v_sweep.began_at, request_id = coalesce(v_ids[looked], v_sweep.request_id),
        ended_at = case when looked < p_limit then v_now end
    where s.project_id = p_project;
    return next;
end
$$;

-- Forget holders that fell silent p_keep ago. Whatever one still held is as unknown without its name.
create or replace function semel.holder_expire(
    p_project text, p_keep interval default '7 days', p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with gone as (
        delete from semel.operation_holder as h
        where h.project_id = p_project and h.holder_id = any (array(
            select o.holder_id from semel.operation_holder as o
            where o.project_id = p_project and o.beat_at < v_now - p_keep
            for update of o skip locked))
        returning 1
    )
    select count(*) into v_count from gone;
    return v_count;
end
$$;
