-- Recovery: runs of lost workers go back to PENDING, or to FAILED when no attempt is left.
--
--   RUNNING ──worker silent for dead_after, or lease_until passed──> PENDING (suspect) | FAILED
--
-- Fence: each write is compare-and-set on the row it judged; the fence grows, so what the lost
--   worker still writes is refused.
-- Locks: project (one sweep at a time), then run by run_id and worker, both with SKIP LOCKED: a run
--   whose holder is just completing is left to it, and a sweep waits for no one.
-- Clock: p_now, or the server's. A sweep that comes late, or finds the last one in the future,
--   trusts no silence: the database or the clock was away, not the workers. It judges no one
--   for dead_after, in which every healthy worker beats again.

-- Sweep one project. p_trust lets a test jump p_now past that guard.
-- outcome: pending or failed; `blind` with no run: nobody is judged yet.
create or replace function semel.run_reap(
    p_project    text,
    p_dead_after interval default '30 seconds',
    p_limit      int default 1000,
    p_trust      boolean default false,
    p_now        timestamptz default null
) returns table (run_id uuid, worker_id text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_project semel.project;
    v_runs    uuid[];
begin
    perform semel.project_require(p_project);
    -- Asked first, since an insert would wait for the sweep that holds the row.
    if not exists (select from semel.project as p where p.project_id = p_project) then
        insert into semel.project (project_id, created_at) values (p_project, v_now)
        on conflict on constraint project_pkey do nothing;
    end if;
    select * into v_project from semel.project as p where p.project_id = p_project for update skip locked;
    if not found then
        return;  -- another sweep is at it
    end if;
    if not p_trust and (v_project.swept_at is null or v_project.swept_at > v_now
                        or v_project.swept_at < v_now - interval '15 seconds') then
        v_project.blind_until := v_now + p_dead_after;
        update semel.worker as w set beat_at = v_now
        where w.project_id = p_project and w.worker_id = any (array(
            select o.worker_id from semel.worker as o
            where o.project_id = p_project and o.beat_at > v_now
            for update skip locked));
    elsif v_project.blind_until > v_now + p_dead_after then
        v_project.blind_until := v_now + p_dead_after;  -- the clock stepped back while blind
    end if;
    update semel.project as p set swept_at = v_now, blind_until = v_project.blind_until
    where p.project_id = p_project;
    if not p_trust and v_project.blind_until > v_now then
        return query select null::uuid, null::text, 'blind';
        return;
    end if;

    -- Workers first, then their runs: judging the runs alone would walk every dead entry of
    -- run_held that a pinned snapshot keeps. Leases are looked at more rarely for that reason:
    -- a lease outlives its worker only where the worker forgot the run.
    v_runs := array(
        select r.run_id from semel.worker as w join semel.run as r
            on r.project_id = p_project and r.agent = any (w.agents) and r.worker_id = w.worker_id
        where w.project_id = p_project and w.stopped_at is null and w.beat_at < v_now - p_dead_after
        limit p_limit);
    if p_trust or v_project.leases_at is null or v_project.leases_at > v_now
       or v_project.leases_at < v_now - least(interval '1 minute', 2 * p_dead_after) then
        v_runs := v_runs || array(
            select r.run_id from semel.run as r
            where r.project_id = p_project and r.worker_id is not null and r.lease_until < v_now
            limit p_limit);
        update semel.project as p set leases_at = v_now where p.project_id = p_project;
    end if;
    if v_runs <> '{}' then  -- for an empty array the planner takes any index, and walks its dead entries
        return query select * from semel.run_lose(p_project, v_runs, p_dead_after, v_now);
    end if;
    -- A dead worker that holds nothing more is not asked about again, unless it beats.
    update semel.worker as w set stopped_at = v_now
    where w.project_id = p_project and w.worker_id = any (array(
        select o.worker_id from semel.worker as o
        where o.project_id = p_project and o.stopped_at is null and o.beat_at < v_now - p_dead_after
          and not exists (select from semel.run as r where r.project_id = p_project
                          and r.agent = any (o.agents) and r.worker_id = o.worker_id)
        for update of o skip locked));
end
$$;

-- A worker is known to be gone (its parent saw it die): judge its runs at once.
create or replace function semel.worker_lost(
    p_project text, p_worker text, p_now timestamptz default null
) returns table (run_id uuid, worker_id text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.worker as w set beat_at = '-infinity', stopped_at = v_now
    where w.project_id = p_project and w.worker_id = p_worker;
    return query
        select * from semel.run_lose(p_project,
            array(select r.run_id from semel.worker as w join semel.run as r
                    on r.project_id = p_project and r.agent = any (w.agents) and r.worker_id = w.worker_id
                  where w.project_id = p_project and w.worker_id = p_worker),
            '0', v_now);
end
$$;

-- Take runs away from workers that are dead by now or whose lease has passed. Internal.
create or replace function semel.run_lose(
    p_project text, p_runs uuid[], p_dead_after interval, p_now timestamptz
) returns table (run_id uuid, worker_id text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_runs uuid[] := semel.run_lock(p_project, p_runs, false);
    v_run  semel.run;
begin
    for v_run in
        select r.* from semel.run as r
        left join semel.worker as w on w.project_id = p_project and w.worker_id = r.worker_id
        -- The status, not the worker: `worker_id is not null` would draw the planner to run_held.
        where r.project_id = p_project and r.run_id = any (v_runs) and r.status = 'RUNNING'
          and (w.beat_at < p_now - p_dead_after or r.lease_until < p_now)
        order by r.run_id
    loop
        perform semel.attempt_record(p_project, v_run, 'lost', 'E-LEASE-001',
                                     format('worker %s was lost', v_run.worker_id), p_now);
        if v_run.attempt_count - v_run.attempt_floor >= v_run.max_attempts then
            update semel.run as r set reaped_at = p_now
            where r.project_id = p_project and r.run_id = v_run.run_id;
            perform semel.run_end(p_project, v_run.worker_id, array[v_run.run_id], array[v_run.fence], 'FAILED',
                -- A compensation says what it could not undo.
                case when v_run.kind = 'undo' then 'E-STEP-006' else 'E-RUN-003' end,
                case when v_run.kind = 'undo' then semel.undo_left(p_project, v_run.parent_run_id)
                     else 'Max retry attempts exceeded' end, null, p_now);
            outcome := 'failed';
        else
            update semel.run as r set
                status = 'PENDING', lane = semel.run_lane('PENDING', r.priority, true), fence = r.fence + 1,
                worker_id = null, lease_until = null, reaped_at = p_now, ready_at = p_now,
                failure_code = 'E-LEASE-001', failure_reason = format('worker %s was lost', v_run.worker_id)
            where r.project_id = p_project and r.run_id = v_run.run_id;
            if v_run.concurrency_key is not null then
                perform semel.key_freed(p_project, array[v_run.agent], array[v_run.concurrency_key], p_now);
            end if;
            outcome := 'pending';
        end if;
        run_id := v_run.run_id;
        worker_id := v_run.worker_id;
        return next;
    end loop;
end
$$;
