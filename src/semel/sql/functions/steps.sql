-- Steps: the journal of a run.
--
--   intent (it has an undo) ──> error, error, … ──> result, once
--                                 └── caught: the handler went on without it; it stands, and its wait is over
--
-- Fence: (project, run, fence, worker), locked until commit, so that reaping and journaling cannot
--   both win. A transaction of the user's own calls this last.
-- Locks: run by run_id, then approval, wait, step.
-- Clock: p_now, or the server's.

-- Append entries of runs that p_worker holds: the nth of each array belongs together.
-- p_entries: intent, error, caught, patch or result. p_places: null for what is called beside the
--   handler. p_contents, p_details: JSON or null. One row each, in their order: won; already, with the
--   result that stands; or lost, and nothing of that run is written.
create or replace function semel.step_record(
    p_project text, p_worker text, p_runs uuid[], p_fences bigint[], p_keys text[], p_entries text[],
    p_kinds text[], p_places int[], p_contents text[], p_details text[], p_now timestamptz default null
) returns table (ord int, outcome text, content text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_held uuid[];
    v_undo uuid[];
begin
    perform semel.project_require(p_project);
    perform semel.key_require(p_keys);
    select array_agg(h.run_id) into v_held from (
        select r.run_id from semel.run as r
        where r.project_id = p_project and r.worker_id is not distinct from p_worker
          and (r.run_id, r.fence) in (select x.run_id, x.fence from unnest(p_runs, p_fences) as x(run_id, fence))
        order by r.run_id
        for no key update) as h;
    select array_agg(distinct x.run_id) into v_undo from unnest(p_runs, p_entries) as x(run_id, entry)
    where x.entry = 'intent' and x.run_id = any (v_held);
    if v_undo is not null then
        update semel.run as r set has_undo = true
        where r.project_id = p_project and r.run_id = any (v_undo) and not r.has_undo;
    end if;
    if 'caught' = any (p_entries) then
        -- What the handler went on without is waited for no more, whoever goes on with the run.
        update semel.approval as a set state = 'VOID', decided_at = v_now
        from unnest(p_runs, p_keys, p_entries) as x(run_id, key, entry)
        where a.project_id = p_project and a.run_id = x.run_id and a.step_key = x.key and a.state = 'PENDING'
          and x.entry = 'caught' and x.run_id = any (v_held);
        delete from semel.wait as w using unnest(p_runs, p_keys, p_entries) as x(run_id, key, entry)
        where w.project_id = p_project and w.run_id = x.run_id and w.step_key = x.key
          and x.entry = 'caught' and x.run_id = any (v_held);
    end if;
    return query
        with asked as materialized (
            select x.*, x.n::int as ord, r.attempt_count,
                coalesce((select o.position from semel.step as o
                          where o.project_id = p_project and o.run_id = x.run_id
                          order by o.position desc limit 1), 0) + row_number() over (partition by x.run_id order by x.n) as position
            from unnest(p_runs, p_fences, p_keys, p_entries, p_kinds, p_places, p_contents, p_details)
                with ordinality as x(run_id, fence, key, entry, kind, place, content, detail, n)
            join semel.run as r on r.project_id = p_project and r.run_id = x.run_id and r.fence = x.fence
            where x.run_id = any (v_held)
        ), written as (
            insert into semel.step as s (project_id, run_id, position, step_key, entry, kind, place, attempt,
                fence, worker_id, content, detail, recorded_at)
            select p_project, a.run_id, a.position, a.key, a.entry, a.kind, a.place, a.attempt_count, a.fence, p_worker,
                coalesce(a.content, 'null')::jsonb, a.detail::jsonb, v_now
            from asked as a order by a.run_id, a.n
            on conflict (project_id, run_id, step_key) where entry = 'result' do nothing
            returning s.run_id, s.position, s.step_key, s.entry, s.content
        )
        select x.n::int,
            case when a.ord is null then 'lost' when w.run_id is null then 'already' else 'won' end,
            -- What stands was there before, or stands further ahead in this very call.
            case when a.ord is not null and w.run_id is null then coalesce(
                (select s.content::text from semel.step as s
                 where s.project_id = p_project and s.run_id = x.run_id and s.step_key = x.key and s.entry = 'result'),
                (select o.content::text from written as o
                 where o.run_id = x.run_id and o.step_key = x.key and o.entry = 'result')) end
        from unnest(p_runs, p_keys) with ordinality as x(run_id, key, n)
        left join asked as a on a.ord = x.n
        left join written as w on w.run_id = a.run_id and w.position = a.position
        order by x.n;
end
$$;

-- The journal of a run, oldest first. Whoever asks learns what stands; writing is what is fenced.
create or replace function semel.step_list(p_project text, p_run uuid)
returns table (step_key text, entry text, kind text, place int, attempt int, content text, detail text)
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return query
        select s.step_key, s.entry, s.kind, s.place, s.attempt, s.content::text, s.detail::text
        from semel.step as s where s.project_id = p_project and s.run_id = p_run
        order by s.position;
end
$$;

-- Whether p_worker holds the run: what a transaction asks before it begins, and locks nothing.
create or replace function semel.run_holds(p_project text, p_worker text, p_run uuid, p_fence bigint) returns boolean
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return exists (select from semel.run as r where r.project_id = p_project and r.run_id = p_run
                   and r.fence = p_fence and r.worker_id is not distinct from p_worker);
end
$$;

-- Append one entry to a run whose row the caller has locked; answers whether it is the one that
-- stands. Internal: what is not a worker's to write, such as a decision.
create or replace function semel.step_put(
    p_project text, p_run semel.run, p_key text, p_entry text, p_kind text, p_place int, p_content jsonb, p_now timestamptz
) returns boolean
language plpgsql security definer set search_path = pg_catalog as $$
begin
    insert into semel.step (project_id, run_id, position, step_key, entry, kind, place, attempt,
        fence, worker_id, content, recorded_at)
    values (p_project, p_run.run_id,
        coalesce((select o.position from semel.step as o
                  where o.project_id = p_project and o.run_id = p_run.run_id
                  order by o.position desc limit 1), 0) + 1,
        p_key, p_entry, p_kind, p_place, p_run.attempt_count, p_run.fence, coalesce(p_run.worker_id, ''), p_content, p_now)
    on conflict (project_id, run_id, step_key) where entry = 'result' do nothing;
    return found;
end
$$;
