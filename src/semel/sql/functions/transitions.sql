-- Transitions: what an operator, or a deadline, does to a run.
--
--   any live state ──cancel──> CANCELLED          FAILED, CANCELLED ──retry──> PENDING
--   any live state ──overdue──> FAILED              what waits ──prioritise──> another lane
--
-- Fence: each makes it larger or moves the row away, so what the holder still writes is refused.
-- Locks: run by run_id; the sweep for deadlines skips what another holds.
-- A run may move between two looks, from life to history and back: only one snapshot of both
--   tables (run_status) can say that it is in neither.
-- Clock: p_now, or the server's.

-- Cancel a run in any live state. Its handler is told by the next beat; what it still writes is
-- refused. What it did is undone once it has stopped, at the latest after p_dead_after.
-- outcome: won, already (it was cancelled), refused (it ended otherwise) or unknown.
create or replace function semel.run_cancel(
    p_project text, p_run uuid, p_reason text default 'cancelled by an operator',
    p_dead_after interval default '30 seconds', p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_run    semel.run;
    v_status text;
begin
    perform semel.project_require(p_project);
    for v_round in 1 .. 3 loop
        perform semel.run_lock(p_project, array[p_run], true);
        select * into v_run from semel.run as r where r.project_id = p_project and r.run_id = p_run for update;
        if found then
            if v_run.worker_id is not null then
                perform semel.attempt_record(p_project, v_run, 'ended', 'E-RUN-005', p_reason, v_now);
            end if;
            update semel.run as r set fence = r.fence + 1 where r.project_id = p_project and r.run_id = p_run;
            perform semel.run_end(p_project, v_run.worker_id, array[p_run], array[v_run.fence + 1],
                                  'CANCELLED', 'E-RUN-005', p_reason, null, v_now,
                                  case when v_run.worker_id is not null then v_now + p_dead_after end);
            return query select p_run, 'won', v_run.status;
            return;
        end if;
        v_status := semel.run_status(p_project, p_run);
        if v_status is null then
            return query select p_run, 'unknown', null::text;
            return;
        elsif v_status in ('COMPLETED', 'FAILED', 'CANCELLED') then
            return query select p_run, case when v_status = 'CANCELLED' then 'already' else 'refused' end, v_status;
            return;
        end if;
    end loop;
    raise exception using errcode = '40001', message = 'a run kept moving between life and history';
end
$$;

-- Let a FAILED or CANCELLED run start again: PENDING, max_attempts more, the count and the fence go
-- on. A PENDING run that waits for its retry is made ready now. outcome: won, refused or unknown;
-- refused also when another live run holds its unique key. A run that is compensated is not retried:
-- the answer is `new`, with the id of a new run of the same agent and input; asked again, of the same one.
create or replace function semel.run_retry(
    p_project text, p_run uuid, p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_row record;
    v_run semel.run;
    v_old semel.run_history;
    v_new uuid := semel.run_beside(p_run, 'retry');
begin
    perform semel.project_require(p_project);
    v_row := semel.run_hold(p_project, p_run);
    v_run := v_row.live;
    v_old := v_row.past;
    if v_run.run_id is not null then
        -- A compensation that waits for its run's handler to stop is not to be hurried.
        if v_run.status = 'PENDING' and v_run.due_at is not null
           and not (v_run.kind = 'undo' and v_run.fence = 0) then
            update semel.run as r set ready_at = v_now, due_at = null, fence = r.fence + 1
            where r.project_id = p_project and r.run_id = p_run;
            return query select p_run, 'won', v_run.status;
        else
            return query select p_run, 'refused', v_run.status;
        end if;
        return;
    elsif v_old.run_id is null then
        return query select p_run, 'unknown', null::text;
        return;
    elsif v_old.status = 'COMPLETED' then
        return query select p_run, 'refused', v_old.status;
        return;
    elsif v_old.undo = 'started' then
        -- What it did is being undone: it cannot go on, but it can begin anew, once.
        if semel.run_status(p_project, v_new) is not null then
            return query select v_new, 'new', v_old.status;
            return;
        end if;
        insert into semel.run_input (project_id, run_id, input)
        select p_project, v_new, i.input from semel.run_input as i where i.project_id = p_project and i.run_id = p_run;
        insert into semel.run (project_id, run_id, agent, kind, status, lane, priority, max_attempts, ready_at,
            unique_key, input, source, event_id, parent_run_id, created_at, concurrency_key)
        values (p_project, v_new, v_old.agent, v_old.kind, 'PENDING', semel.run_lane('PENDING', v_old.priority, false),
            v_old.priority, v_old.max_attempts, v_now, v_old.unique_key, v_old.input, v_old.source, v_old.event_id,
            v_old.parent_run_id, v_now, v_old.concurrency_key)
        on conflict (project_id, agent, unique_key) where unique_key is not null do nothing;
        if not found then
            delete from semel.run_input as i where i.project_id = p_project and i.run_id = v_new;
            return query select p_run, 'refused', v_old.status;
        else
            return query select v_new, 'new', v_old.status;
        end if;
        return;
    end if;
    insert into semel.run (project_id, run_id, agent, kind, version, has_undo, has_wait, status, lane, priority, attempt_count, attempt_floor,
        max_attempts, release_count, fence, reaped_at, ready_at, unique_key, failure_code, failure_reason,
        input, source, event_id, parent_run_id, created_at, started_at, batch, concurrency_key)
    values (p_project, p_run, v_old.agent, v_old.kind, v_old.version, v_old.undo is not null, v_old.has_wait, 'PENDING', semel.run_lane('PENDING', v_old.priority, false),
        v_old.priority, v_old.attempt_count, v_old.attempt_count, v_old.max_attempts, v_old.release_count,
        v_old.fence + 1, v_old.reaped_at, v_now, v_old.unique_key, v_old.failure_code, v_old.failure_reason,
        v_old.input, v_old.source, v_old.event_id, v_old.parent_run_id, v_old.created_at,
        coalesce(v_old.started_at, v_old.claimed_at), v_old.batch, v_old.concurrency_key)
    on conflict (project_id, agent, unique_key) where unique_key is not null do nothing;
    if not found then
        return query select p_run, 'refused', v_old.status;
        return;
    end if;
    delete from semel.run_history as h
    where h.project_id = p_project and h.run_id = p_run and h.finished_at = v_old.finished_at;
    if v_old.batch is not null then
        perform semel.batch_reopen(p_project, v_old.batch);
    end if;
    return query select p_run, 'won', v_old.status;
end
$$;

-- Give a run that waits another priority: it goes to the end of those that are ready with it. What runs
-- keeps its own. outcome: won, already, refused (it runs, or has ended) or unknown.
create or replace function semel.run_prioritise(
    p_project text, p_run uuid, p_priority int, p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz;
    v_run    semel.run;
    v_status text;
begin
    perform semel.project_require(p_project);
    if p_priority is null or p_priority not between 0 and 9 then
        raise exception using errcode = 'SMQ01', message = 'a priority that is none',
            hint = 'A priority is 0 (last) to 9 (first).';
    end if;
    select * into v_run from semel.run as r where r.project_id = p_project and r.run_id = p_run for update;
    if not found then
        v_status := semel.run_status(p_project, p_run);
        return query select p_run, case when v_status is null then 'unknown' else 'refused' end, v_status;
        return;
    elsif v_run.status = 'RUNNING' then
        return query select p_run, 'refused', v_run.status;
        return;
    elsif v_run.priority = p_priority then
        return query select p_run, 'already', v_run.status;
        return;
    end if;
    -- Ready as of now, after its lock: claimers remember how far they have come in a lane, and begin
    -- there. What else its lane says, that it goes alone or waits for its key, stays.
    v_now := coalesce(p_now, clock_timestamp());
    update semel.run as r set priority = p_priority,
        lane = r.lane - r.lane % 100 + semel.run_lane(r.status, p_priority, false),
        ready_at = case when r.ready_at is not null and r.status = 'PENDING' then v_now else r.ready_at end
    where r.project_id = p_project and r.run_id = p_run;
    return query select p_run, 'won', v_run.status;
end
$$;

-- Fail the runs whose deadline has passed, in whatever live state. Answers which.
create or replace function semel.run_overdue(
    p_project text, p_limit int default 1000, p_dead_after interval default '30 seconds',
    p_now timestamptz default null
) returns table (run_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_runs uuid[];
    v_id   uuid;
    v_run  semel.run;
begin
    perform semel.project_require(p_project);
    v_runs := array(select c.run_id from semel.run as c
                    where c.project_id = p_project and c.deadline_at <= v_now
                    order by c.deadline_at limit p_limit);
    if v_runs = '{}' then
        return;
    end if;
    foreach v_id in array semel.run_lock(p_project, v_runs, false) loop
        -- As it is now: a child's end, further ahead in this very sweep, may have woken it.
        select * into v_run from semel.run as r
        where r.project_id = p_project and r.run_id = v_id and r.deadline_at <= v_now;
        continue when not found;
        if v_run.worker_id is not null then
            perform semel.attempt_record(p_project, v_run, 'ended', 'E-RUN-004', 'its deadline passed', v_now);
        end if;
        perform semel.run_end(p_project, v_run.worker_id, array[v_run.run_id], array[v_run.fence],
                              'FAILED', 'E-RUN-004', format('its deadline %s passed', v_run.deadline_at), null, v_now,
                              case when v_run.worker_id is not null then v_now + p_dead_after end);
        run_id := v_run.run_id;
        return next;
    end loop;
end
$$;

-- The row of a run, locked: as it lives, or as it ended last. Both are null of one that is unknown.
-- Internal.
create or replace function semel.run_hold(
    p_project text, p_run uuid, out live semel.run, out past semel.run_history
)
language plpgsql security definer set search_path = pg_catalog as $$
begin
    for v_round in 1 .. 3 loop
        select * into live from semel.run as r
        where r.project_id = p_project and r.run_id = p_run for update;
        exit when found;
        select * into past from semel.run_history as h
        where h.project_id = p_project and h.run_id = p_run order by h.finished_at desc limit 1 for update;
        exit when found;
        -- It may have moved between the two while we waited for its row: look again.
        exit when semel.run_status(p_project, p_run) is null;
        if v_round = 3 then
            raise exception using errcode = '40001', message = 'a run kept moving between life and history';
        end if;
    end loop;
end
$$;

-- The state of a run, live or finished, by one snapshot; null when there is none. Internal.
-- Volatile: each call takes a snapshot of its own.
create or replace function semel.run_status(p_project text, p_run uuid) returns text
language plpgsql security definer set search_path = pg_catalog as $$
begin
    return (
        select r.status from semel.run as r where r.project_id = p_project and r.run_id = p_run
        union all
        select h.status from semel.run_history as h where h.project_id = p_project and h.run_id = p_run
        limit 1);
end
$$;
