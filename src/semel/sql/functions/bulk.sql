-- Bulk: the transitions of an operator, for a page of runs in one transaction.
--
--   each run of the page goes the way of run_cancel or run_retry, and answers as it would alone
--
-- Fence: that of run_cancel and run_retry.
-- Locks: the runs of the page and the parents that their ends wake, by run_id, before the first moves;
--   a retried run's batch after it.
-- Clock: p_now, or the server's.

-- Cancel the runs of a page. One row each: won, already, refused or unknown, and the state found.
create or replace function semel.run_cancel_page(
    p_project text, p_runs uuid[], p_reason text default 'cancelled by an operator',
    p_dead_after interval default '30 seconds', p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_run uuid;
begin
    perform semel.project_require(p_project);
    perform semel.run_lock(p_project, p_runs, true);
    -- That leaves runs without parents to their own moves; but the first of them may let go, and so
    -- lock, a run of its key that another page comes to.
    perform from semel.run as r where r.project_id = p_project and r.run_id = any (p_runs)
    order by r.run_id
    for update;
    for v_run in select distinct u.id from unnest(p_runs) as u(id) order by u.id loop
        return query select c.run_id, c.outcome, c.status
            from semel.run_cancel(p_project, v_run, p_reason, p_dead_after, p_now) as c;
    end loop;
end
$$;

-- Retry the runs of a page. One row each: of which run, won, new, refused or unknown, the state
-- found, and the run that starts.
create or replace function semel.run_retry_page(
    p_project text, p_runs uuid[], p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text, started_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_run uuid;
begin
    perform semel.project_require(p_project);
    for v_run in select distinct u.id from unnest(p_runs) as u(id) order by u.id loop
        return query select v_run, r.outcome, r.status, r.run_id
            from semel.run_retry(p_project, v_run, p_now) as r;
    end loop;
end
$$;
