-- Runs: made here, and finished here. Claims, ends and what an operator does have files of their own.
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
-- Locks: run by run_id, a child's end with the parent that it wakes. Claims skip what another
--   holds; writes of the holder wait.
-- Clock: p_now, or the server's, read once.

-- Whether an input, or all of a batch together, is more than a transition should copy each time: it
-- is kept apart. Inlined: no search_path is fixed, every name is qualified.
create or replace function semel.input_is_large(p_input anyelement) returns boolean
language sql stable parallel safe as $$
    select pg_catalog.pg_column_size(p_input) > 1024
$$;

-- Insert live runs, ready now or due at p_due; answers how many, which is less than asked only when
-- a live run of the agent holds p_unique (then one run is asked for). Internal: ids and times come from the caller.
create or replace function semel.run_create(
    p_project text, p_runs uuid[], p_agents text[], p_inputs jsonb[], p_priorities int[],
    p_max_attempts int[], p_sources text[], p_events uuid[],
    p_due timestamptz default null, p_deadline timestamptz default null, p_unique text default null,
    p_concurrency_key text default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    for v_n in 1 .. cardinality(p_agents) loop
        if v_n = 1 or p_agents[v_n] is distinct from p_agents[v_n - 1] then
            perform semel.agent_require(p_agents[v_n]);
            if starts_with(p_agents[v_n], 'semel.') then
                raise exception using errcode = 'SMQ01', message = 'an agent whose name begins with semel.',
                    hint = 'Those are Semel''s own, and started by it alone.';
            end if;
        end if;
        if p_priorities[v_n] not between 0 and 9 or p_max_attempts[v_n] < 1 then
            raise exception using errcode = 'SMQ01',
                message = 'a priority or max_attempts that is none',
                hint = 'A priority is 0 (last) to 9 (first); max_attempts is at least 1.';
        end if;
    end loop;
    if p_unique is null then
        insert into semel.run (project_id, run_id, agent, status, lane, priority, max_attempts,
            ready_at, due_at, deadline_at, input, source, event_id, created_at, concurrency_key)
        select p_project, x.run_id, x.agent, 'PENDING', semel.run_lane('PENDING', x.priority, false), x.priority,
            x.attempts, case when p_due is null then v_now end, p_due, p_deadline,
            case when not semel.input_is_large(x.input) then x.input end, x.source, x.event_id, v_now, p_concurrency_key
        from unnest(p_runs, p_agents, p_inputs, p_priorities, p_max_attempts, p_sources, p_events)
            as x(run_id, agent, input, priority, attempts, source, event_id);
    else
        -- One run. Whoever cannot conflict is spared this: each row would be written speculatively.
        insert into semel.run (project_id, run_id, agent, status, lane, priority, max_attempts,
            ready_at, due_at, deadline_at, unique_key, input, source, event_id, created_at, concurrency_key)
        values (p_project, p_runs[1], p_agents[1], 'PENDING', semel.run_lane('PENDING', p_priorities[1], false),
            p_priorities[1], p_max_attempts[1], case when p_due is null then v_now end, p_due, p_deadline, p_unique,
            case when not semel.input_is_large(p_inputs[1]) then p_inputs[1] end, p_sources[1], p_events[1], v_now,
            p_concurrency_key)
        on conflict (project_id, agent, unique_key) where unique_key is not null do nothing;
    end if;
    if not found then
        return 0;
    end if;
    if semel.input_is_large(p_inputs) then
        insert into semel.run_input (project_id, run_id, input)
        select p_project, x.run_id, x.input from unnest(p_runs, p_inputs) as x(run_id, input)
        where semel.input_is_large(x.input);
    end if;
    return cardinality(p_runs);
end
$$;

-- Start a run inside the caller's transaction; with a key, at most one for (project, source, key).
-- With p_unique, at most one live run of the agent for it. p_deadline counts from now.
-- p_concurrency_key: no more runs of it are leased at once than its agent allows, by default one.
-- outcome: new, duplicate (the run that is there), conflict (other agent or input) or exists
-- (the live run that holds p_unique; nothing was remembered of p_key). Agent and input are all that
-- is compared: another priority, delay, deadline or max_attempts under a known key is a duplicate.
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
    p_now          timestamptz default null,
    p_concurrency_key text default null
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
    v_ours   boolean;
    v_old    record;
begin
    perform semel.project_require(p_project);
    perform semel.concurrency_key_require(p_concurrency_key);
    if p_key is not null then
        v_event := semel.uuid_at(v_now);
        v_key := semel.event_key(p_source, p_key);
        v_digest := semel.input_digest(p_agent, v_input);
        for v_round in 1 .. 3 loop
            insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id,
                event_id, run_id, input_digest, first_seen_at, last_seen_at)
            values (p_project, v_key, p_source, 'api', p_key, v_event, v_run, v_digest, v_now, v_now)
            on conflict on constraint dedupe_pkey do nothing;
            v_ours := found;
            exit when v_ours;
            select d.event_id, d.run_id, d.input_digest, d.last_seen_at into v_old
            from semel.dedupe as d where d.project_id = p_project and d.dedupe_key = v_key
            for update;
            continue when not found;  -- purged in between: it counts as absent
            if v_old.last_seen_at + p_memory <= v_now then
                update semel.dedupe as d set event_id = v_event, run_id = v_run, input_digest = v_digest,
                    first_seen_at = v_now, last_seen_at = v_now, hits = 1
                where d.project_id = p_project and d.dedupe_key = v_key;
                v_ours := true;
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
        if not v_ours then
            raise exception using errcode = '40001', message = 'a key was used and purged again and again';
        end if;
    end if;
    select j.run_id, j.event_id into v_old from semel.run_join(
        p_project, v_run, p_agent, v_input, p_priority, p_max_attempts, p_source, v_event,
        v_real + p_delay, v_real + p_deadline, p_unique, p_concurrency_key) as j;
    if v_old.run_id = v_run then
        return query select v_run, v_event, 'new';
        return;
    end if;
    if p_key is not null then
        delete from semel.dedupe as d
        where d.project_id = p_project and d.dedupe_key = v_key and d.event_id = v_event;
    end if;
    return query select v_old.run_id, v_old.event_id, 'exists';
end
$$;

-- Insert one live run, or find the one that holds p_unique: the run that there is now, and the event
-- that made it. Internal.
create or replace function semel.run_join(
    p_project text, p_run uuid, p_agent text, p_input jsonb, p_priority int, p_max_attempts int,
    p_source text, p_event uuid, p_due timestamptz, p_deadline timestamptz, p_unique text,
    p_concurrency_key text default null
) returns table (run_id uuid, event_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
begin
    -- The holder of a unique key may end while we look for it: then the key is free again.
    for v_round in 1 .. 3 loop
        if semel.run_create(p_project, array[p_run], array[p_agent], array[p_input], array[p_priority],
                            array[p_max_attempts], array[p_source], array[p_event],
                            p_due, p_deadline, p_unique, p_concurrency_key) = 1 then
            return query select p_run, p_event;
            return;
        end if;
        return query
            select r.run_id, r.event_id from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.unique_key = p_unique;
        if found then
            return;
        end if;
    end loop;
    raise exception using errcode = '40001', message = 'the holder of a unique key kept changing';
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
    perform semel.run_lock(p_project, p_runs, true);
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
    perform semel.run_lock(p_project, array[p_run], true);
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
                              'FAILED',
                              -- A compensation says itself what it could not undo.
                              case when v_run.kind = 'undo' then p_code else 'E-RUN-003' end,
                              case when v_run.kind = 'undo' then p_reason else 'Max retry attempts exceeded' end,
                              null, v_now);
        return query select p_run, 'failed';
    else
        update semel.run as r set
            status = 'PENDING', lane = semel.run_lane('PENDING', r.priority, false), fence = r.fence + 1,
            worker_id = null, lease_until = null,
            ready_at = case when p_delay <= '0' then v_now end,
            due_at = case when p_delay > '0' then v_now + p_delay end,
            failure_code = p_code, failure_reason = p_reason
        where r.project_id = p_project and r.run_id = p_run;
        if v_run.concurrency_key is not null then
            perform semel.key_freed(p_project, array[v_run.agent], array[v_run.concurrency_key], v_now);
        end if;
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
    v_agents text[] := '{}';
    v_keys   text[] := '{}';
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
        if v_run.concurrency_key is not null then
            v_agents := v_agents || v_run.agent;
            v_keys := v_keys || v_run.concurrency_key;
        end if;
    end loop;
    update semel.run as r set
        status = 'PENDING', fence = r.fence + 1, worker_id = null, lease_until = null, ready_at = v_now,
        lane = semel.run_lane('PENDING', r.priority, r.lane >= 100),
        released = true, release_count = r.release_count + 1
    where r.project_id = p_project and r.run_id = any (v_won);
    if v_keys <> '{}' then
        perform semel.key_freed(p_project, v_agents, v_keys, v_now);
    end if;
    return query
        select x.run_id, case when w.run_id is null then 'lost' else 'won' end
        from unnest(p_runs, p_fences) with ordinality as x(run_id, fence, n)
        left join unnest(v_won, v_fences) as w(run_id, fence) on w.run_id = x.run_id and w.fence = x.fence
        order by x.n;
end
$$;
