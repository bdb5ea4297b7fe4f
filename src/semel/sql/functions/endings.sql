-- Endings: the one way out of life for a run, and what its end sets in motion.
--
--   any live state ──run_end──> COMPLETED | FAILED | CANCELLED (history)
--                        └─> its waits go, a parent goes on, the next of its key may go, intents are undone
--
-- Fence: only the row that matches (run, fence, worker) moves.
-- Locks: run by run_id, a child's end with the parent that it wakes (run_lock); what its end moves
--   besides comes after, and skips what another holds.
-- Clock: the caller's.

-- Lock runs that are to end together with the parents that their end wakes, in one order: two that
-- end children of each other's runs would wait for each other else. p_wait: wait for what another
-- holds; a lone run without a parent is left to its caller's own lock. Without it, answers those of
-- p_runs that are locked now, and their parents with them. Internal.
create or replace function semel.run_lock(p_project text, p_runs uuid[], p_wait boolean) returns uuid[]
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_parents uuid[];
    v_locked  uuid[];
begin
    v_parents := array(select c.parent_run_id from semel.run as c
                       where c.project_id = p_project and c.run_id = any (p_runs)
                         and c.kind = 'child' and c.parent_run_id is not null);
    if p_wait then
        if v_parents <> '{}' then
            perform from semel.run as r
            where r.project_id = p_project and r.run_id = any (p_runs || v_parents)
            order by r.run_id
            for update;
        end if;
        return p_runs;
    end if;
    v_locked := array(select r.run_id from semel.run as r
                      where r.project_id = p_project and r.run_id = any (p_runs || v_parents)
                      order by r.run_id
                      for update skip locked);
    return array(select c.run_id from semel.run as c
                 where c.project_id = p_project and c.run_id = any (p_runs) and c.run_id = any (v_locked)
                   and (c.kind <> 'child' or c.parent_run_id is null or c.parent_run_id = any (v_locked)
                        or not exists (select from semel.run as p
                                       where p.project_id = p_project and p.run_id = c.parent_run_id))
                 order by c.run_id);
end
$$;

-- The one way to COMPLETED, FAILED and CANCELLED: move the live rows that match (run, fence,
-- worker) to history, and answer which moved. A null worker is none: a waiting or pending run.
-- Their waits and open questions end with them, a parent that waits goes on, the next of a key may
-- go, and intents are undone: from p_stopped on, when a handler may still be at work (null: it is not), or when an
-- operator says so (E-STEP-001). Whoever ends runs has called run_lock before.
create or replace function semel.run_end(
    p_project text, p_worker text, p_runs uuid[], p_fences bigint[], p_status text,
    p_code text, p_reason text, p_results text[], p_now timestamptz, p_stopped timestamptz default null
) returns uuid[]
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_ended   uuid[];
    v_waited  uuid[];
    v_undo    uuid[];
    v_parents uuid[];
    v_of      uuid[];
    v_agents  text[];
    v_keys    text[];
    v_run     uuid;
begin
    with asked as materialized (
        select x.run_id, x.fence, x.result from unnest(p_runs, p_fences, p_results) as x(run_id, fence, result)
    ), held as materialized (
        -- `is not distinct from` keeps the planner off run_held, whose dead entries a pinned
        -- snapshot would make it walk.
        select r.run_id, a.result from asked as a join semel.run as r on r.run_id = a.run_id and r.fence = a.fence
        where r.project_id = p_project and r.worker_id is not distinct from p_worker
        order by r.run_id
        for update of r
    ), gone as (
        delete from semel.run as r using held as h
        where r.project_id = p_project and r.run_id = h.run_id
        returning r.*, h.result
    ), kept as (
        insert into semel.run_history (project_id, run_id, agent, kind, version, status, priority, attempt_count, max_attempts,
            release_count, fence, worker_id, heartbeat_at, claimed_at, reaped_at, deadline_at, unique_key, failure_code, failure_reason,
            has_wait, undo, input, result, source, event_id, parent_run_id, created_at, started_at, finished_at, batch, concurrency_key)
        select g.project_id, g.run_id, g.agent, g.kind, g.version, p_status, g.priority, g.attempt_count, g.max_attempts,
            g.release_count, g.fence, g.worker_id, g.heartbeat_at, g.claimed_at, g.reaped_at, g.deadline_at, g.unique_key, p_code, p_reason,
            g.has_wait, case when g.has_undo and p_status <> 'COMPLETED'
                             then case when p_code = 'E-STEP-001' then 'held' else 'started' end end,
            g.input, g.result::jsonb, g.source, g.event_id, g.parent_run_id, g.created_at, g.started_at, p_now, g.batch, g.concurrency_key
        from gone as g
        returning run_history.run_id, run_history.has_wait, run_history.undo, run_history.agent, run_history.concurrency_key,
            case when run_history.kind = 'child' then run_history.parent_run_id end as parent_run_id
    )
    select coalesce(array_agg(k.run_id), '{}'), array_agg(k.run_id) filter (where k.has_wait),
        array_agg(k.run_id) filter (where k.undo = 'started'),
        array_agg(k.parent_run_id order by k.parent_run_id) filter (where k.parent_run_id is not null),
        array_agg(k.run_id order by k.parent_run_id) filter (where k.parent_run_id is not null),
        array_agg(k.agent) filter (where k.concurrency_key is not null),
        array_agg(k.concurrency_key) filter (where k.concurrency_key is not null)
    into v_ended, v_waited, v_undo, v_parents, v_of, v_agents, v_keys from kept as k;
    if v_waited is not null then
        update semel.approval as a set state = 'VOID', decided_at = p_now
        where a.project_id = p_project and a.run_id = any (v_waited) and a.state = 'PENDING';
        delete from semel.wait as w where w.project_id = p_project and w.run_id = any (v_waited);
    end if;
    if v_undo is not null then
        foreach v_run in array v_undo loop
            perform semel.undo_start(p_project, v_run, coalesce(p_stopped, p_now), p_now);
        end loop;
    end if;
    for v_n in 1 .. coalesce(cardinality(v_of), 0) loop
        perform semel.child_ended(p_project, v_parents[v_n], v_of[v_n], p_now);
    end loop;
    if v_keys is not null then
        perform semel.key_freed(p_project, v_agents, v_keys, p_now);
    end if;
    return v_ended;
end
$$;

-- Remember an attempt that ended without completing its run.
create or replace function semel.attempt_record(
    p_project text, p_run semel.run, p_outcome text, p_code text, p_reason text, p_now timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    insert into semel.attempt (project_id, run_id, fence, attempt, worker_id, outcome, code, reason, claimed_at, ended_at)
    values (p_project, p_run.run_id, p_run.fence, p_run.attempt_count, p_run.worker_id,
            p_outcome, p_code, p_reason, p_run.claimed_at, p_now);
end
$$;
