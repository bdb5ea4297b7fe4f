-- Runs: the only code that makes, claims and finishes a row of semel.run.
--
--   start ──> PENDING ──claim──> RUNNING ──complete──> COMPLETED        (history)
--               ^  ^               │  │
--               │  └── release ────┘  ├──fail: attempts left ──> PENDING after a delay
--               ├───── reap ──────────┴──fail: none left ─────> FAILED     (history)
--               │                     any live state ──cancel──> CANCELLED  (history)
--               └──retry────────────── FAILED, CANCELLED
--
-- Fence: (project, run, fence, worker). Every claim, release, retry and reap makes the fence
--   larger, so a write that names an older one changes nothing and is told `lost`.
-- Locks: run by run_id. Claims skip what another holds; writes of the holder wait.
-- Clock: p_now, or the server's, read once.

-- Insert live runs, ready now or due at p_due; answers how many, which is less than asked only when
-- a live run of the agent holds p_unique. Internal: ids and times come from the caller.
create or replace function semel.run_create(
    p_project text, p_runs uuid[], p_agents text[], p_inputs jsonb[], p_priorities int[],
    p_max_attempts int[], p_sources text[], p_events uuid[],
    p_due timestamptz default null, p_deadline timestamptz default null, p_unique text default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := clock_timestamp();
    v_made int;
begin
    perform semel.agent_require(x.agent) from unnest(p_agents) as x(agent);
    if exists (select from unnest(p_priorities, p_max_attempts) as x(priority, attempts)
               where x.priority not between 0 and 9 or x.attempts < 1) then
        raise exception using errcode = 'SMQ01',
            message = 'a priority or max_attempts that is none',
            hint = 'A priority is 0 (last) to 9 (first); max_attempts is at least 1.';
    end if;
    with asked as materialized (
        -- A larger input would be copied by each transition: it is kept apart.
        select x.*, octet_length(x.input::text) > 1024 as large
        from unnest(p_runs, p_agents, p_inputs, p_priorities, p_max_attempts, p_sources, p_events)
            as x(run_id, agent, input, priority, attempts, source, event_id)
    ), made as (
        insert into semel.run (project_id, run_id, agent, status, lane, priority, max_attempts,
            ready_at, due_at, deadline_at, unique_key, input, source, event_id, created_at)
        select p_project, a.run_id, a.agent, 'PENDING', semel.run_lane('PENDING', a.priority, false), a.priority,
            a.attempts, case when p_due is null then v_now end, p_due, p_deadline, p_unique,
            case when not a.large then a.input end, a.source, a.event_id, v_now
        from asked as a
        on conflict (project_id, agent, unique_key) where unique_key is not null do nothing
        returning run_id
    ), kept as (
        insert into semel.run_input (project_id, run_id, input)
        select p_project, a.run_id, a.input from asked as a join made as m on m.run_id = a.run_id where a.large
    )
    select count(*) into v_made from made;
    return v_made;
end
$$;

-- Start a run inside the caller's transaction; with a key, at most one for (project, source, key).
-- With p_unique, at most one live run of the agent for it. p_deadline counts from now.
-- outcome: new, duplicate (the run that is there), conflict (other agent or input) or exists
-- (the live run that holds p_unique; nothing was remembered of p_key).
create or replace function semel.run_start(
    p_project      text,
    p_agent        text,
    p_input        text,
    p_key          text default null,
    p_source       text default 'api',
    p_priority     int default 5,
    p_max_attempts int default null,
    p_delay        interval default null,
    p_deadline     interval default null,
    p_unique       text default null,
    p_memory       interval default '7 days',
    p_now          timestamptz default null
) returns table (run_id uuid, event_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_real   timestamptz := clock_timestamp();
    v_now    timestamptz := coalesce(p_now, v_real);
    v_run    uuid := semel.uuid_at(v_real);
    v_event  uuid;
    v_input  jsonb := coalesce(p_input::jsonb, 'null');
    v_key    bytea;
    v_digest bytea;
    v_old    record;
begin
    perform semel.project_require(p_project);
    if p_key is not null then
        v_event := semel.uuid_at(v_now);
        v_key := semel.event_key(p_source, p_key);
        v_digest := semel.input_digest(p_agent, v_input);
        for v_round in 1 .. 3 loop
            insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id,
                event_id, run_id, input_digest, first_seen_at, last_seen_at)
            values (p_project, v_key, p_source, 'api', p_key, v_event, v_run, v_digest, v_now, v_now)
            on conflict on constraint dedupe_pkey do nothing;
            exit when found;
            select d.event_id, d.run_id, d.input_digest, d.last_seen_at into v_old
            from semel.dedupe as d where d.project_id = p_project and d.dedupe_key = v_key
            for update;
            continue when not found;  -- purged in between: it counts as absent
            if v_old.last_seen_at + p_memory <= v_now then
                update semel.dedupe as d set event_id = v_event, run_id = v_run, input_digest = v_digest,
                    first_seen_at = v_now, last_seen_at = v_now, hits = 1
                where d.project_id = p_project and d.dedupe_key = v_key;
                exit;
            end if;
            if v_old.input_digest is not null and v_old.input_digest <> v_digest then
                return query select v_old.run_id, v_old.event_id, 'conflict';
                return;
            end if;
            update semel.dedupe as d set last_seen_at = greatest(d.last_seen_at, v_now), hits = d.hits + 1
            where d.project_id = p_project and d.dedupe_key = v_key;
            return query select v_old.run_id, v_old.event_id, 'duplicate';
            return;
        end loop;
    end if;
    -- The holder of a unique key may end while we look for it: then the key is free again.
    for v_round in 1 .. 3 loop
        if semel.run_create(p_project, array[v_run], array[p_agent], array[v_input], array[p_priority],
                            array[p_max_attempts], array[p_source], array[v_event],
                            v_real + p_delay, v_real + p_deadline, p_unique) = 1 then
            return query select v_run, v_event, 'new';
            return;
        end if;
        select r.run_id, r.event_id into v_old from semel.run as r
        where r.project_id = p_project and r.agent = p_agent and r.unique_key = p_unique;
        continue when not found;
        if p_key is not null then
            delete from semel.dedupe as d
            where d.project_id = p_project and d.dedupe_key = v_key and d.event_id = v_event;
        end if;
        return query select v_old.run_id, v_old.event_id, 'exists';
        return;
    end loop;
    raise exception using errcode = '40001', message = 'the holder of a unique key kept changing';
end
$$;

-- Lease up to p_limit ready runs of p_agent to p_worker until now + p_lease; the claim is a beat.
-- p_lanes: where to look, in this order; p_marks: for each, the ready_at of the last run claimed
--   there. The scan begins 100 ms before the mark and so never walks the dead entries that a
--   pinned snapshot keeps behind it. A mark is the caller's hint, never a truth: run_hint lowers it.
-- p_oldest: the lane whose first run waits longest goes first; every eighth claim asks for it.
-- A paused agent yields none; one with a limit, or in a project with one, is claimed under its
-- row's lock and never beyond it. Concurrent claimers never receive the same run.
create or replace function semel.run_claim(
    p_project      text,
    p_agent        text,
    p_worker       text,
    p_limit        int,
    p_lease        interval,
    p_max_attempts int default 3,
    p_lanes        int[] default '{0,1,2,3,4,5,6,7,8,9,10}',
    p_marks        timestamptz[] default '{}',
    p_oldest       boolean default false,
    p_now          timestamptz default null
) returns table (
    run_id uuid, fence bigint, attempt int, max_attempts int, input text,
    source text, event_id uuid, priority int, lane int, ready_at timestamptz
)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_limit int;
    v_runs  uuid[];
    v_lanes int[];
    v_ready timestamptz[];
begin
    perform semel.project_require(p_project);
    v_limit := semel.run_allowance(p_project, p_agent, p_limit);
    if v_limit <= 0 then
        return;
    end if;
    select array_agg(c.run_id), array_agg(c.lane), array_agg(c.ready_at) into v_runs, v_lanes, v_ready
    from (
        select p.run_id, p.lane, p.ready_at
        from (select l.lane, coalesce(l.mark - interval '100 ms', '-infinity') as mark
              from unnest(p_lanes, p_marks) with ordinality as l(lane, mark, n)
              order by case when p_oldest then (
                    select r.ready_at from semel.run as r
                    where r.project_id = p_project and r.agent = p_agent and r.lane = l.lane
                      and r.ready_at is not null and r.ready_at >= coalesce(l.mark - interval '100 ms', '-infinity')
                    order by r.ready_at, r.run_id limit 1) end nulls last, l.n) as l
        cross join lateral (
            select r.run_id, r.lane, r.ready_at from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.lane = l.lane
              and r.ready_at is not null and r.ready_at >= l.mark
            order by r.ready_at, r.run_id
            limit v_limit
            for update skip locked) as p
        limit v_limit) as c;
    if v_runs is null then
        return;
    end if;
    perform semel.worker_touch(p_project, p_worker, p_agent, v_now);
    return query
        with claimed as (
            update semel.run as r set
                status = 'RUNNING',
                fence = r.fence + 1,
                attempt_count = r.attempt_count
                    + case when r.status = 'RESUMED' or r.released and r.release_count <= 10 then 0 else 1 end,
                max_attempts = coalesce(r.max_attempts, p_max_attempts),
                released = false,
                worker_id = p_worker,
                lease_until = v_now + p_lease,
                heartbeat_at = v_now,
                claimed_at = v_now,
                started_at = coalesce(r.started_at, v_now),
                ready_at = null,
                due_at = null
            where r.project_id = p_project and r.run_id = any (v_runs)
            returning r.run_id, r.fence, r.attempt_count, r.max_attempts, r.input, r.source, r.event_id, r.priority
        )
        select c.run_id, c.fence, c.attempt_count, c.max_attempts,
            coalesce(c.input, (select i.input from semel.run_input as i
                               where i.project_id = p_project and i.run_id = c.run_id))::text,
            c.source, c.event_id, c.priority::int, x.lane, x.ready_at
        from unnest(v_runs, v_lanes, v_ready) with ordinality as x(run_id, lane, ready_at, n)
        join claimed as c on c.run_id = x.run_id
        order by x.n;
end
$$;

-- How many of p_limit a claim may take: none of a paused agent, and no more than a limit leaves.
-- Counted from live leases, so it heals itself. Locks project, then agent, where they limit: another
-- claim of the same limited agent is told none, and goes on to its next pair.
create or replace function semel.run_allowance(p_project text, p_agent text, p_limit int) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_limit   int := p_limit;
    v_agent   record;
    v_project record;
begin
    select a.paused_at, a.max_running into v_agent from semel.agent as a
    where a.project_id = p_project and a.agent = p_agent;
    select p.max_running into v_project from semel.project as p where p.project_id = p_project;
    if v_agent.paused_at is not null then
        return 0;
    end if;
    if v_project.max_running is not null then
        select p.max_running into v_project from semel.project as p
        where p.project_id = p_project for update skip locked;
        if not found then
            return 0;
        end if;
        v_limit := least(v_limit, v_project.max_running - (
            select count(*) from semel.run as r where r.project_id = p_project and r.worker_id is not null));
    end if;
    if v_agent.max_running is not null then
        select a.max_running into v_agent.max_running from semel.agent as a
        where a.project_id = p_project and a.agent = p_agent for update skip locked;
        if not found then
            return 0;
        end if;
        v_limit := least(v_limit, v_agent.max_running - (
            select count(*) from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.worker_id is not null));
    end if;
    return v_limit;
end
$$;

-- Make what is due claimable: delayed starts and retries. Answers how many.
create or replace function semel.run_due(
    p_project text, p_agent text default null, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with due as (
        update semel.run as r set ready_at = v_now, due_at = null
        where r.project_id = p_project
          and r.run_id = any (array(
                select c.run_id from semel.run as c
                where c.project_id = p_project and (p_agent is null or c.agent = p_agent)
                  and c.due_at <= v_now and c.status in ('PENDING', 'RESUMED')
                order by c.agent, c.due_at
                limit p_limit
                for update skip locked))
        returning 1
    )
    select count(*) into v_count from due;
    return v_count;
end
$$;

-- Finish runs that p_worker holds. One row each: won, already (this very completion, sent again)
-- or lost. Results are JSON, written once into history.
create or replace function semel.run_complete(
    p_project text, p_worker text, p_runs uuid[], p_fences bigint[], p_results text[],
    p_now timestamptz default null
) returns table (run_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_won uuid[];
begin
    perform semel.project_require(p_project);
    v_won := semel.run_end(p_project, p_worker, p_runs, p_fences, 'COMPLETED', null, null, p_results, v_now);
    return query
        select x.run_id,
            -- A call may name one run with an older fence too: only the newest can have won.
            case when x.run_id = any (v_won) and x.fence = x.newest then 'won'
                 when exists (select from semel.run_history as h
                              where h.project_id = p_project and h.run_id = x.run_id and h.fence = x.fence
                                and h.worker_id = p_worker and h.status = 'COMPLETED') then 'already'
                 else 'lost' end
        from (select u.run_id, u.fence, u.n, max(u.fence) over (partition by u.run_id) as newest
              from unnest(p_runs, p_fences) with ordinality as u(run_id, fence, n)) as x
        order by x.n;
end
$$;

-- End an attempt that went wrong. Attempts left and p_retryable: PENDING after p_delay; else FAILED.
-- outcome: retry, failed, already (sent again) or lost.
create or replace function semel.run_fail(
    p_project text, p_worker text, p_run uuid, p_fence bigint, p_code text, p_reason text,
    p_delay interval default '0', p_retryable boolean default true, p_now timestamptz default null
) returns table (run_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_run semel.run;
begin
    perform semel.project_require(p_project);
    select * into v_run from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for update;
    if not found then
        return query select p_run, case
            when exists (select from semel.attempt as a
                         where a.project_id = p_project and a.run_id = p_run and a.fence = p_fence
                           and a.worker_id = p_worker and a.outcome = 'failed') then 'already'
            else 'lost' end;
        return;
    end if;
    perform semel.attempt_record(p_project, v_run, 'failed', p_code, p_reason, v_now);
    if not p_retryable then
        perform semel.run_end(p_project, p_worker, array[p_run], array[p_fence], 'FAILED', p_code, p_reason, null, v_now);
        return query select p_run, 'failed';
    elsif v_run.attempt_count - v_run.attempt_floor >= v_run.max_attempts then
        perform semel.run_end(p_project, p_worker, array[p_run], array[p_fence],
                              'FAILED', 'E-RUN-003', 'Max retry attempts exceeded', null, v_now);
        return query select p_run, 'failed';
    else
        update semel.run as r set
            status = 'PENDING', lane = semel.run_lane('PENDING', r.priority, false), fence = r.fence + 1,
            worker_id = null, lease_until = null,
            ready_at = case when p_delay <= '0' then v_now end,
            due_at = case when p_delay > '0' then v_now + p_delay end,
            failure_code = p_code, failure_reason = p_reason
        where r.project_id = p_project and r.run_id = p_run;
        return query select p_run, 'retry';
    end if;
end
$$;

-- Give runs back unharmed (a deploy): PENDING, ready at once; the next claim is no new attempt,
-- for the first ten times. outcome: won or lost.
create or replace function semel.run_release(
    p_project text, p_worker text, p_runs uuid[], p_fences bigint[], p_now timestamptz default null
) returns table (run_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_run    semel.run;
    v_won    uuid[] := '{}';
    v_fences bigint[] := '{}';
begin
    perform semel.project_require(p_project);
    for v_run in
        select r.* from semel.run as r join unnest(p_runs, p_fences) as x(run_id, fence)
            on r.run_id = x.run_id and r.fence = x.fence
        where r.project_id = p_project and r.worker_id is not distinct from p_worker
        order by r.run_id
        for update of r
    loop
        perform semel.attempt_record(p_project, v_run, 'released', null, 'the worker was asked to stop', v_now);
        v_won := v_won || v_run.run_id;
        v_fences := v_fences || v_run.fence;
    end loop;
    update semel.run as r set
        status = 'PENDING', fence = r.fence + 1, worker_id = null, lease_until = null, ready_at = v_now,
        lane = semel.run_lane('PENDING', r.priority, r.lane >= 100),
        released = true, release_count = r.release_count + 1
    where r.project_id = p_project and r.run_id = any (v_won);
    return query
        select x.run_id, case when w.run_id is null then 'lost' else 'won' end
        from unnest(p_runs, p_fences) with ordinality as x(run_id, fence, n)
        left join unnest(v_won, v_fences) as w(run_id, fence) on w.run_id = x.run_id and w.fence = x.fence
        order by x.n;
end
$$;

-- The one way to COMPLETED, FAILED and CANCELLED: move the live rows that match (run, fence,
-- worker) to history, and answer which moved. A null worker is none: a waiting or pending run.
create or replace function semel.run_end(
    p_project text, p_worker text, p_runs uuid[], p_fences bigint[], p_status text,
    p_code text, p_reason text, p_results text[], p_now timestamptz
) returns uuid[]
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_ended uuid[];
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
        insert into semel.run_history (project_id, run_id, agent, status, priority, attempt_count, max_attempts,
            release_count, fence, worker_id, heartbeat_at, claimed_at, reaped_at, deadline_at, unique_key, failure_code, failure_reason,
            input, result, source, event_id, parent_run_id, created_at, started_at, finished_at)
        select g.project_id, g.run_id, g.agent, p_status, g.priority, g.attempt_count, g.max_attempts,
            g.release_count, g.fence, g.worker_id, g.heartbeat_at, g.claimed_at, g.reaped_at, g.deadline_at, g.unique_key, p_code, p_reason,
            g.input, g.result::jsonb, g.source, g.event_id, g.parent_run_id, g.created_at, g.started_at, p_now
        from gone as g
        returning run_history.run_id
    )
    select coalesce(array_agg(kept.run_id), '{}') into v_ended from kept;
    return v_ended;
end
$$;

-- Remember an attempt that ended without completing its run.
create or replace function semel.attempt_record(
    p_project text, p_run semel.run, p_outcome text, p_code text, p_reason text, p_now timestamptz
) returns void
language sql security definer set search_path = pg_catalog as $$
    insert into semel.attempt (project_id, run_id, fence, attempt, worker_id, outcome, code, reason, claimed_at, ended_at)
    values (p_project, p_run.run_id, p_run.fence, p_run.attempt_count, p_run.worker_id,
            p_outcome, p_code, p_reason, p_run.claimed_at, p_now)
$$;

-- Cancel a run in any live state. Its handler is told by the next beat; what it still writes is
-- refused. outcome: won, already (it was cancelled), refused (it ended otherwise) or unknown.
create or replace function semel.run_cancel(
    p_project text, p_run uuid, p_reason text default 'cancelled by an operator', p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_run    semel.run;
    v_status text;
begin
    perform semel.project_require(p_project);
    select * into v_run from semel.run as r where r.project_id = p_project and r.run_id = p_run for update;
    if found then
        if v_run.worker_id is not null then
            perform semel.attempt_record(p_project, v_run, 'ended', 'E-RUN-005', p_reason, v_now);
        end if;
        update semel.run as r set fence = r.fence + 1 where r.project_id = p_project and r.run_id = p_run;
        perform semel.run_end(p_project, v_run.worker_id, array[p_run], array[v_run.fence + 1],
                              'CANCELLED', 'E-RUN-005', p_reason, null, v_now);
        return query select p_run, 'won', v_run.status;
        return;
    end if;
    select h.status into v_status from semel.run_history as h
    where h.project_id = p_project and h.run_id = p_run order by h.finished_at desc limit 1;
    return query select p_run, case when v_status is null then 'unknown' when v_status = 'CANCELLED' then 'already'
                                    else 'refused' end, v_status;
end
$$;

-- Let a FAILED or CANCELLED run start again: PENDING, max_attempts more, the count and the fence go
-- on. A PENDING run that waits for its retry is made ready now. outcome: won, refused or unknown;
-- refused also when another live run holds its unique key.
create or replace function semel.run_retry(
    p_project text, p_run uuid, p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_old semel.run_history;
    v_run record;
begin
    perform semel.project_require(p_project);
    select r.status, r.due_at into v_run from semel.run as r
    where r.project_id = p_project and r.run_id = p_run for update;
    if found then
        if v_run.status = 'PENDING' and v_run.due_at is not null then
            update semel.run as r set ready_at = v_now, due_at = null, fence = r.fence + 1
            where r.project_id = p_project and r.run_id = p_run;
            return query select p_run, 'won', v_run.status;
        else
            return query select p_run, 'refused', v_run.status;
        end if;
        return;
    end if;
    select * into v_old from semel.run_history as h
    where h.project_id = p_project and h.run_id = p_run order by h.finished_at desc limit 1 for update;
    if not found then
        -- Another retry may have brought it back while we waited for its row.
        select r.status into v_run from semel.run as r where r.project_id = p_project and r.run_id = p_run;
        return query select p_run, case when found then 'refused' else 'unknown' end, v_run.status;
        return;
    elsif v_old.status = 'COMPLETED' then
        return query select p_run, 'refused', v_old.status;
        return;
    end if;
    insert into semel.run (project_id, run_id, agent, status, lane, priority, attempt_count, attempt_floor,
        max_attempts, release_count, fence, reaped_at, ready_at, unique_key, failure_code, failure_reason,
        input, source, event_id, parent_run_id, created_at, started_at)
    values (p_project, p_run, v_old.agent, 'PENDING', semel.run_lane('PENDING', v_old.priority, false),
        v_old.priority, v_old.attempt_count, v_old.attempt_count, v_old.max_attempts, v_old.release_count,
        v_old.fence + 1, v_old.reaped_at, v_now, v_old.unique_key, v_old.failure_code, v_old.failure_reason,
        v_old.input, v_old.source, v_old.event_id, v_old.parent_run_id, v_old.created_at, v_old.started_at)
    on conflict (project_id, agent, unique_key) where unique_key is not null do nothing;
    if not found then
        return query select p_run, 'refused', v_old.status;
        return;
    end if;
    delete from semel.run_history as h
    where h.project_id = p_project and h.run_id = p_run and h.finished_at = v_old.finished_at;
    return query select p_run, 'won', v_old.status;
end
$$;

-- Fail the runs whose deadline has passed, in whatever live state. Answers which.
create or replace function semel.run_overdue(
    p_project text, p_limit int default 1000, p_now timestamptz default null
) returns table (run_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_run semel.run;
begin
    perform semel.project_require(p_project);
    for v_run in
        select r.* from semel.run as r
        where r.project_id = p_project
          and r.run_id = any (array(select c.run_id from semel.run as c
                                    where c.project_id = p_project and c.deadline_at <= v_now
                                    order by c.deadline_at limit p_limit))
        order by r.run_id
        for update skip locked
    loop
        if v_run.worker_id is not null then
            perform semel.attempt_record(p_project, v_run, 'ended', 'E-RUN-004', 'its deadline passed', v_now);
        end if;
        perform semel.run_end(p_project, v_run.worker_id, array[v_run.run_id], array[v_run.fence],
                              'FAILED', 'E-RUN-004', format('its deadline %s passed', v_run.deadline_at), null, v_now);
        run_id := v_run.run_id;
        return next;
    end loop;
end
$$;

-- Where the runs of p_agents wait: one row for each (project, agent, lane) with a ready run, and
-- the ready_at of its first. The workers' hint, lock-free, across projects; a claim decides.
-- Without marks it looks from the start: it finds what committed late, came back, or is due, and
-- what a clock that stepped back put behind a mark. With marks (arrays of one length) it looks
-- only there, from 100 ms before each, and walks no dead entries. Paused agents are left out.
create or replace function semel.run_hint(
    p_agents   text[],
    p_projects text[] default null,
    p_of       text[] default null,
    p_lanes    int[] default null,
    p_marks    timestamptz[] default null,
    p_limit    int default 10000,
    p_now      timestamptz default null
) returns table (project_id text, agent text, lane int, ready_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    if p_projects is not null then
        return query
            select m.project_id, m.agent, m.lane, h.ready_at
            from unnest(p_projects, p_of, p_lanes, p_marks) as m(project_id, agent, lane, mark)
            cross join lateral (
                select r.ready_at from semel.run as r
                where r.project_id = m.project_id and r.agent = m.agent and r.lane = m.lane
                  and r.ready_at is not null and r.ready_at >= m.mark - interval '100 ms'
                order by r.ready_at, r.run_id limit 1) as h
            where not exists (select from semel.agent as a where a.project_id = m.project_id
                              and a.agent = m.agent and a.paused_at is not null);
        return;
    end if;
    -- A loose index scan: one probe for each lane that has work, however much it has.
    return query
        with recursive ready as (
            (select r.project_id, r.agent, r.lane, r.ready_at from semel.run as r where r.ready_at is not null
             order by r.project_id, r.agent, r.lane, r.ready_at limit 1)
            union all
            select n.project_id, n.agent, n.lane, n.ready_at from ready as p cross join lateral (
                select r.project_id, r.agent, r.lane, r.ready_at from semel.run as r
                where r.ready_at is not null and (r.project_id, r.agent, r.lane) > (p.project_id, p.agent, p.lane)
                order by r.project_id, r.agent, r.lane, r.ready_at limit 1) as n
        ), due as (
            (select r.project_id, r.agent, r.due_at from semel.run as r where r.due_at is not null
             order by r.project_id, r.agent, r.due_at limit 1)
            union all
            select n.project_id, n.agent, n.due_at from due as p cross join lateral (
                select r.project_id, r.agent, r.due_at from semel.run as r
                where r.due_at is not null and (r.project_id, r.agent) > (p.project_id, p.agent)
                order by r.project_id, r.agent, r.due_at limit 1) as n
        )
        select w.project_id, w.agent, w.lane, w.ready_at
        from (select r.project_id, r.agent, r.lane::int as lane, r.ready_at from ready as r
              union all
              -- Due, and not yet ready: no lane. The worker makes it ready first.
              select d.project_id, d.agent, null, d.due_at from due as d where d.due_at <= v_now) as w
        where w.agent = any (p_agents)
          and not exists (select from semel.agent as a where a.project_id = w.project_id
                          and a.agent = w.agent and a.paused_at is not null)
        limit p_limit;
end
$$;
