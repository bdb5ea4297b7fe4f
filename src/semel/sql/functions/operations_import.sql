-- Import: operations of a system before this one, taken over with their states.
--
-- A row that nothing has touched here follows its origin: an import may be run again and brings
-- what changed there meanwhile. Once it was claimed or judged here it is ours; where the origin then
-- says otherwise, two systems have executed one request, and the id is told.
--
-- Locks: operation by id, in the order of the array's ids. The origin is locked by who reads it.
-- Clock: p_now, or the server's.

-- Take over operations as p_from has them; arrays of one length, at most 1000 a call. Results are
-- bytes as they are answered with 200; an operation whose target is not API is kept as it is and
-- makes its id conflict. updated_at is the import: retention counts from it.
-- Planned anew for each batch: a plan made while the ledger was small would read all of it for each.
-- imported: new here; changed: known, and moved on over there; known: as it was; conflicts: ids
-- that stand here for another operation, or were executed or judged here.
create or replace function semel.operation_import(
    p_project text, p_from text, p_requests text[], p_targets text[], p_events text[], p_actors text[], p_payloads text[],
    p_statuses text[], p_attempts int[], p_results bytea[], p_errors text[], p_created timestamptz[],
    p_processing timestamptz[], p_completed timestamptz[], p_now timestamptz default null
) returns table (imported int, changed int, known int, conflicts text[])
language plpgsql security definer set search_path = pg_catalog set plan_cache_mode = force_custom_plan as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    if coalesce(p_from, '') = '' or cardinality(p_requests) > 1000 then
        raise exception using errcode = 'SMQ01',
            message = format('%s operations in one call, from %L', cardinality(p_requests), p_from),
            hint = 'Send at most 1000, and say where they come from.';
    end if;
    return query
        with old as materialized (
            select x.request, x.target, x.event, x.actor, x.payload::jsonb as payload, x.status, x.attempts, x.error,
                   x.processing, x.completed, least(coalesce(x.created, v_now), v_now) as created,
                   -- Success without a result is a procedure that answers nothing: null.
                   case when x.status = 'SUCCEEDED' then coalesce(x.result, 'null'::bytea) else x.result end as body
            from unnest(p_requests, p_targets, p_events, p_actors, p_payloads, p_statuses, p_attempts, p_results,
                        p_errors, p_created, p_processing, p_completed)
                as x(request, target, event, actor, payload, status, attempts, result, error, created, processing, completed)
        ), met as materialized (
            -- What stands here: nothing (fresh), an imported one that nobody touched (the same, or from there
            -- and moved on), or ours.
            select x.*, o.request_id is null as fresh,
                coalesce(f.untouched, false) and f.same as same,
                coalesce(f.untouched and o.imported_from = p_from and not f.same, false) as moved,
                (o.target, o.event_type, o.actor_user_id) is not distinct from (x.target, x.event, x.actor)
                    and (o.payload = x.payload or '{}' in (o.payload, x.payload))
                    -- What failed there had no effect there. What may have had one was judged here, or is told.
                    and (x.status in ('PENDING', 'FAILED') or exists (
                        select from semel.judgement as j where j.project_id = p_project and j.request_id = x.request
                          and j.before ->> 'status' = x.status and j.before ->> 'attempts' = x.attempts::text)) as agrees
            from old as x
            -- The limit keeps this a look at the key for each, however large the ledger.
            left join lateral (select * from semel.operation as e
                where e.project_id = p_project and e.request_id = x.request limit 1) as o on true
            cross join lateral (select
                o.imported_from is not null and o.xact is null and not exists (
                    select from semel.judgement as j where j.project_id = p_project and j.request_id = x.request),
                (o.target, o.event_type, o.actor_user_id, o.payload, o.status, o.attempts) is not distinct from
                    (x.target, x.event, x.actor, x.payload, x.status, x.attempts)) as f(untouched, same)
        ), kept as (
            insert into semel.operation as o (project_id, request_id, target, event_type, actor_user_id, payload, status,
                attempts, reply_status, reply_headers, reply_body, error, created_at, updated_at, processing_at,
                completed_at, imported_from)
            select p_project, x.request, x.target, x.event, x.actor, x.payload, x.status, x.attempts,
                   case when x.body is not null then 200 end,
                   case when x.body is not null then '[["content-type", "application/json"]]'::jsonb end,
                   x.body, x.error, x.created, v_now, x.processing, x.completed, p_from
            from met as x where x.fresh or x.moved order by x.request
            on conflict (project_id, request_id) do update set
                target = excluded.target, event_type = excluded.event_type, actor_user_id = excluded.actor_user_id,
                payload = excluded.payload, status = excluded.status, attempts = excluded.attempts,
                reply_status = excluded.reply_status, reply_headers = excluded.reply_headers,
                reply_body = excluded.reply_body, gone = false, error = excluded.error,
                updated_at = excluded.updated_at, processing_at = excluded.processing_at,
                completed_at = excluded.completed_at
            where o.imported_from = p_from and o.xact is null -- claimed at this very moment, it is ours
            returning o.request_id
        ), seen as (
            select x.request, x.fresh, k.request_id is not null as kept,
                   case when x.fresh or x.moved then k.request_id is not null else x.same or x.agrees end as ours
            from met as x left join kept as k on k.request_id = x.request
        )
        select (count(*) filter (where s.kept and s.fresh))::int, (count(*) filter (where s.kept and not s.fresh))::int,
               (count(*) filter (where not s.kept and s.ours))::int,
               coalesce(array_agg(s.request order by s.request) filter (where not s.ours), '{}')
        from seen as s;
end
$$;
