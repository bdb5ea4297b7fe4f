-- Steps: the journal of a run. Written only by the worker that holds the run.
--
-- Fence: (project, run, fence, worker), locked FOR SHARE, so that reaping and journaling
--   cannot both win.
-- Locks: run, then step.
-- Clock: p_now, or the server's.

-- Append entries of one run: p_keys[i] gets p_entries[i] (intent, error, result) with the JSON of
-- p_contents[i]. outcome: won; already, with the result that stands; or lost, nothing is written.
create or replace function semel.step_record(
    p_project text, p_worker text, p_run uuid, p_fence bigint,
    p_keys text[], p_entries text[], p_contents text[], p_now timestamptz default null
) returns table (step_key text, outcome text, content text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_attempt int;
    v_written text[];
begin
    perform semel.project_require(p_project);
    select r.attempt_count into v_attempt from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for share;
    if not found then
        return query select x.key, 'lost', null::text from unnest(p_keys) as x(key);
        return;
    end if;
    with written as (
        insert into semel.step (project_id, run_id, entry_id, step_key, entry, attempt, fence, worker_id, content, recorded_at)
        select p_project, p_run, semel.uuid_at(v_now), x.key, x.entry, v_attempt, p_fence, p_worker, x.content::jsonb, v_now
        from unnest(p_keys, p_entries, p_contents) with ordinality as x(key, entry, content, n)
        order by x.key, x.n
        on conflict (project_id, run_id, step_key) where entry = 'result' do nothing
        returning step.step_key, step.entry
    )
    select coalesce(array_agg(w.entry || ':' || w.step_key), '{}') into v_written from written as w;
    return query
        select x.key, case when x.entry || ':' || x.key = any (v_written) then 'won' else 'already' end,
            (select s.content::text from semel.step as s
             where s.project_id = p_project and s.run_id = p_run and s.step_key = x.key and s.entry = 'result')
        from unnest(p_keys, p_entries) with ordinality as x(key, entry, n) order by x.n;
end
$$;
