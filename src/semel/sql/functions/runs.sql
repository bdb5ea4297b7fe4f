-- Runs: the only code that makes, claims and finishes a row of semel.run.
--
--   start ──> PENDING ──claim──> RUNNING ──complete──> COMPLETED        (history)
--               ^  ^               │  │
--               │  └── release ────┘  ├──fail: attempts left ──> PENDING after a delay
--               └───── reap ──────────┴──fail: none left ─────> FAILED  (history)
--
-- Fence: (project, run, fence, worker). Every claim, release, retry and reap makes the fence
--   larger, so a write that names an older one changes nothing and is told `lost`.
-- Locks: run by run_id. Claims skip what another holds; writes of the holder wait.
-- Clock: p_now, or the server's, read once.

-- Insert one live run, ready now or due at p_due. Internal: ids and times come from the caller.
create or replace function semel.run_create(
    p_project text, p_run uuid, p_agent text, p_input jsonb, p_priority int, p_max_attempts int,
    p_source text, p_event uuid, p_parent uuid, p_due timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := clock_timestamp();
    v_large boolean := octet_length(p_input::text) > 1024;  -- a larger one would be copied at each transition
begin
    if p_agent is null or p_agent !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$' then
        raise exception using errcode = 'SMQ01',
            message = format('%L is no agent', left(coalesce(p_agent, ''), 150)),
            hint = 'An agent is 1 to 128 of A-Z, a-z, 0-9, _, . and -.';
    end if;
    if p_priority not between 0 and 9 or p_max_attempts < 1 then
        raise exception using errcode = 'SMQ01',
            message = format('priority %s, max_attempts %s', p_priority, p_max_attempts),
            hint = 'A priority is 0 (last) to 9 (first); max_attempts is at least 1.';
    end if;
    insert into semel.run (project_id, run_id, agent, status, lane, priority, max_attempts,
        ready_at, due_at, input, source, event_id, parent_run_id, created_at)
    values (p_project, p_run, p_agent, 'PENDING', semel.run_lane('PENDING', p_priority, false), p_priority,
        p_max_attempts, case when p_due is null then v_now end, p_due,
        case when not v_large then p_input end, p_source, p_event, p_parent, v_now);
    if v_large then
        insert into semel.run_input (project_id, run_id, input) values (p_project, p_run, p_input);
    end if;
end
$$;

-- Start a run inside the caller's transaction; with a key, at most one for (project, source, key).
-- outcome: new, duplicate (the run that is there) or conflict (other agent or input).
create or replace function semel.run_start(
    p_project      text,
    p_agent        text,
    p_input        text,
    p_key          text default null,
    p_source       text default 'api',
    p_priority     int default 5,
    p_max_attempts int default null,
    p_delay        interval default null,
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
        v_event := semel.uuid_at(v_real);
        v_key := semel.parts_digest(p_source, p_key);
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
            if v_old.input_digest is distinct from v_digest then
                return query select v_old.run_id, v_old.event_id, 'conflict';
                return;
            end if;
            update semel.dedupe as d set last_seen_at = greatest(d.last_seen_at, v_now), hits = d.hits + 1
            where d.project_id = p_project and d.dedupe_key = v_key;
            return query select v_old.run_id, v_old.event_id, 'duplicate';
            return;
        end loop;
    end if;
    perform semel.run_create(p_project, v_run, p_agent, v_input, p_priority, p_max_attempts,
                             p_source, v_event, null, v_real + p_delay);
    return query select v_run, v_event, 'new';
end
$$;

-- Lease up to p_limit ready runs of p_agent to p_worker until now + p_lease; the claim is a beat.
-- p_alone: take suspects instead, runs whose last worker was lost, for a process of their own.
-- Concurrent claimers never receive the same run; a caller may receive none.
create or replace function semel.run_claim(
    p_project      text,
    p_agent        text,
    p_worker       text,
    p_limit        int,
    p_lease        interval,
    p_max_attempts int default 3,
    p_alone        boolean default false,
    p_now          timestamptz default null
) returns table (
    run_id uuid, fence bigint, attempt int, max_attempts int, input text,
    source text, event_id uuid, priority int, created_at timestamptz
)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_until timestamptz := v_now + p_lease;
begin
    perform semel.project_require(p_project);
    if exists (select from semel.run as r
               where r.project_id = p_project and r.agent = p_agent and r.due_at <= v_now) then
        perform semel.run_due(p_project, p_agent, p_now => p_now);
    end if;
    perform semel.worker_touch(p_project, p_worker, v_now);
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
                lease_until = v_until,
                heartbeat_at = v_now,
                claimed_at = v_now,
                started_at = coalesce(r.started_at, v_now),
                ready_at = null,
                due_at = null
            where r.project_id = p_project
              and r.run_id = any (array(
                    select c.run_id from semel.run as c
                    where c.project_id = p_project and c.agent = p_agent and c.ready_at is not null
                      and c.lane >= case when p_alone then 100 else 0 end
                      and c.lane < case when p_alone then 200 else 100 end
                    order by c.lane, c.ready_at, c.run_id
                    limit p_limit
                    for update skip locked))
            returning r.*
        )
        select c.run_id, c.fence, c.attempt_count, c.max_attempts,
            coalesce(c.input, (select i.input from semel.run_input as i
                               where i.project_id = p_project and i.run_id = c.run_id))::text,
            c.source, c.event_id, c.priority::int, c.created_at
        from claimed as c order by c.lane, c.created_at, c.run_id;
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
            case when x.run_id = any (v_won) then 'won'
                 when exists (select from semel.run_history as h
                              where h.project_id = p_project and h.run_id = x.run_id and h.fence = x.fence
                                and h.worker_id = p_worker and h.status = 'COMPLETED') then 'already'
                 else 'lost' end
        from unnest(p_runs, p_fences) as x(run_id, fence);
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
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_run semel.run;
    v_won uuid[] := '{}';
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
    end loop;
    update semel.run as r set
        status = 'PENDING', fence = r.fence + 1, worker_id = null, lease_until = null, ready_at = v_now,
        lane = semel.run_lane('PENDING', r.priority, r.lane >= 100),
        released = true, release_count = r.release_count + 1
    where r.project_id = p_project and r.run_id = any (v_won);
    return query
        select x.run_id, case when x.run_id = any (v_won) then 'won' else 'lost' end
        from unnest(p_runs) as x(run_id);
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
            release_count, fence, worker_id, heartbeat_at, claimed_at, reaped_at, failure_code, failure_reason,
            input, result, source, event_id, parent_run_id, created_at, started_at, finished_at)
        select g.project_id, g.run_id, g.agent, p_status, g.priority, g.attempt_count, g.max_attempts,
            g.release_count, g.fence, g.worker_id, g.heartbeat_at, g.claimed_at, g.reaped_at, p_code, p_reason,
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

-- Which (project, agent) pairs of p_agents have work: the workers' hint, lock-free, across
-- projects. alone: the pair has suspects. A hint is never a truth; a claim decides.
create or replace function semel.run_hint(
    p_agents text[], p_limit int default 1000, p_now timestamptz default null
) returns table (project_id text, agent text, waiting boolean, alone boolean)
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    -- A loose index scan: one probe for each pair that has work, however much it has.
    return query
        with recursive ready as (
            (select r.project_id, r.agent from semel.run as r where r.ready_at is not null
             order by r.project_id, r.agent limit 1)
            union all
            select n.project_id, n.agent from ready as p cross join lateral (
                select r.project_id, r.agent from semel.run as r
                where r.ready_at is not null and (r.project_id, r.agent) > (p.project_id, p.agent)
                order by r.project_id, r.agent limit 1) as n
        ), due as (
            (select r.project_id, r.agent, r.due_at from semel.run as r where r.due_at is not null
             order by r.project_id, r.agent, r.due_at limit 1)
            union all
            select n.project_id, n.agent, n.due_at from due as p cross join lateral (
                select r.project_id, r.agent, r.due_at from semel.run as r
                where r.due_at is not null and (r.project_id, r.agent) > (p.project_id, p.agent)
                order by r.project_id, r.agent, r.due_at limit 1) as n
        ), pair as (
            select r.project_id, r.agent from ready as r
            union
            select d.project_id, d.agent from due as d where d.due_at <= v_now
        )
        select p.project_id, p.agent,
            exists (select from semel.run as r where r.project_id = p.project_id and r.agent = p.agent
                    and r.ready_at is not null and r.lane < 100)
            or exists (select from semel.run as r where r.project_id = p.project_id and r.agent = p.agent
                       and r.due_at <= v_now),
            exists (select from semel.run as r where r.project_id = p.project_id and r.agent = p.agent
                    and r.ready_at is not null and r.lane >= 100)
        from pair as p where p.agent = any (p_agents)
        limit p_limit;
end
$$;
