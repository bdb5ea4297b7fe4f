-- Workers: a process's own heartbeat stands for every run it holds.
--
--   register / claim / beat ──> alive ──silent for dead_after──> its runs are reaped
--                                 ├──drain──> told by a beat ──holds nothing──> drained ──resume──> alive
--                                 └──stop──> stopped
--
-- Fence: a beat answers which of the runs it names are no longer held; it never takes one back.
-- Locks: worker, then run by run_id with SKIP LOCKED.
-- Clock: p_now, or the server's.

-- Announce a worker process and the agents it serves in p_project. p_versions: of its code, for each
-- agent, '' for none. p_joins: whether events of one correlation key join the live run. p_claims in p_spans:
-- rates; p_key_paths, p_key_limits: see keys.sql. What an operator has set instead (agent_set) stays in force.
create or replace function semel.worker_register(
    p_project text, p_worker text, p_host text, p_pid int, p_slots int,
    p_agents text[], p_max_attempts int[], p_max_running int[], p_executors text[],
    p_versions text[] default '{}', p_joins boolean[] default '{}', p_claims int[] default '{}',
    p_spans interval[] default '{}', p_key_paths text[] default '{}', p_key_limits int[] default '{}',
    p_now timestamptz default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    perform semel.version_require(p_versions);
    if not exists (select from semel.project as p where p.project_id = p_project) then
        insert into semel.project (project_id, created_at) values (p_project, v_now)
        on conflict on constraint project_pkey do nothing;
    end if;
    insert into semel.agent as a (project_id, agent, max_attempts, max_running, executor, joins, seen_at,
        rate_claims, rate_span, key_path, key_limit, code_running, code_claims, code_span, code_key_limit)
    select p_project, x.agent, x.max_attempts, x.max_running, x.executor, coalesce(x.joins, false), v_now,
        x.claims, x.span, x.key_path, x.key_limit, x.max_running, x.claims, x.span, x.key_limit
    from unnest(p_agents, p_max_attempts, p_max_running, p_executors, p_joins, p_claims, p_spans, p_key_paths, p_key_limits)
        as x(agent, max_attempts, max_running, executor, joins, claims, span, key_path, key_limit)
    order by x.agent
    on conflict on constraint agent_pkey do update set
        max_attempts = excluded.max_attempts, executor = excluded.executor,
        joins = excluded.joins, seen_at = excluded.seen_at, key_path = excluded.key_path,
        max_running = case when 'concurrency' = any (a.edits) then a.max_running else excluded.max_running end,
        rate_claims = case when 'rate' = any (a.edits) then a.rate_claims else excluded.rate_claims end,
        rate_span = case when 'rate' = any (a.edits) then a.rate_span else excluded.rate_span end,
        key_limit = case when 'per_limit' = any (a.edits) then a.key_limit else excluded.key_limit end,
        code_running = excluded.code_running, code_claims = excluded.code_claims,
        code_span = excluded.code_span, code_key_limit = excluded.code_key_limit;
    perform semel.bucket_make(p_project, p_agents, v_now);
    insert into semel.worker as w (project_id, worker_id, host, pid, agents, versions, slots, started_at, beat_at)
    values (p_project, p_worker, p_host, p_pid, p_agents,
        array(select format('%s@%s', x.agent, x.version) from unnest(p_agents, p_versions) as x(agent, version)
              where x.version <> ''),
        p_slots, v_now, v_now)
    on conflict on constraint worker_pkey do update set
        host = excluded.host, pid = excluded.pid, agents = excluded.agents, versions = excluded.versions, slots = excluded.slots,
        beat_at = greatest(w.beat_at, excluded.beat_at);
end
$$;

-- A sign of life, and with p_agent of what it holds runs of: there the reaper looks for them.
-- A worker seen for the first time gets its row here.
create or replace function semel.worker_touch(
    p_project text, p_worker text, p_agent text, p_now timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    -- Claims come by the hundred: after a beat of this second one more says nothing. Beats, which
    -- name no agent, are always written: dead_after may be as short as a second.
    if p_agent is not null and exists (select from semel.worker as w where w.project_id = p_project and w.worker_id = p_worker
               and w.stopped_at is null and w.beat_at between p_now - interval '1 second' and p_now
               and p_agent = any (w.agents)) then
        return;
    end if;
    insert into semel.worker as w (project_id, worker_id, host, pid, agents, slots, started_at, beat_at)
    values (p_project, p_worker, '', 0, case when p_agent is null then '{}' else array[p_agent] end, 0, p_now, p_now)
    on conflict on constraint worker_pkey do update set
        beat_at = excluded.beat_at, stopped_at = null,
        agents = case when p_agent is null or p_agent = any (w.agents) then w.agents else w.agents || p_agent end;
end
$$;

-- Beat for p_worker and the runs it believes to hold; renew those past half of their lease.
-- Answers the runs it holds no longer: stop their handlers. And what an operator asks of the worker,
-- in rows that name no run: drain; slots, with how many where a fence stands else.
create or replace function semel.run_beat(
    p_project text, p_worker text, p_runs uuid[], p_fences bigint[], p_lease interval,
    p_now timestamptz default null
) returns table (run_id uuid, fence bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    perform semel.worker_touch(p_project, p_worker, null, v_now);
    update semel.run as r set lease_until = v_now + p_lease, heartbeat_at = v_now
    where r.project_id = p_project
      and r.run_id = any (array(
            select c.run_id from semel.run as c join unnest(p_runs, p_fences) as x(run_id, fence)
                on c.run_id = x.run_id and c.fence = x.fence
            where c.project_id = p_project and c.worker_id is not distinct from p_worker
              and c.lease_until < v_now + p_lease / 2
            order by c.run_id
            for update of c skip locked));
    return query
        select x.run_id, x.fence, 'lost'
        from unnest(p_runs, p_fences) as x(run_id, fence)
        left join semel.run as r
            on r.project_id = p_project and r.run_id = x.run_id and r.fence = x.fence
           and r.worker_id is not distinct from p_worker
        where r.run_id is null;
    return query
        select null::uuid, o.slots, o.asked
        from semel.worker as w
        cross join lateral (values (w.draining_at is not null, null::bigint, 'drain'),
                                   (w.slots_told is not null, w.slots_told, 'slots')) as o(is_asked, slots, asked)
        where w.project_id = p_project and w.worker_id = p_worker and o.is_asked;
end
$$;

-- Ask a worker to claim nothing more, or with p_on false to go on; it is told by its next beat, and says
-- so (worker_drained) once it holds nothing. What it holds goes on. outcome: won, already, refused (it
-- has stopped) or unknown.
create or replace function semel.worker_drain(
    p_project text, p_worker text, p_on boolean default true, p_now timestamptz default null
) returns table (worker_id text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_worker semel.worker;
begin
    perform semel.project_require(p_project);
    select * into v_worker from semel.worker as w where w.project_id = p_project and w.worker_id = p_worker for update;
    if not found then
        return query select p_worker, 'unknown';
    elsif v_worker.stopped_at is not null then
        return query select p_worker, 'refused';
    elsif (v_worker.draining_at is not null) = p_on then
        return query select p_worker, 'already';
    else
        update semel.worker as w set draining_at = case when p_on then v_now end, drained_at = null
        where w.project_id = p_project and w.worker_id = p_worker;
        return query select p_worker, 'won';
    end if;
end
$$;

-- A worker says that it claims nothing more, as it was asked, and holds nothing in any project. Whether
-- that is news.
create or replace function semel.worker_drained(p_project text, p_worker text, p_now timestamptz default null) returns boolean
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.worker as w set drained_at = v_now
    where w.project_id = p_project and w.worker_id = p_worker and w.draining_at is not null and w.drained_at is null;
    return found;
end
$$;

-- Have a worker hold p_slots runs at a time from its next beat on, null: as many as it was started with.
-- What it holds beyond them goes on. outcome: won, refused (it has stopped) or unknown.
create or replace function semel.worker_slots(p_project text, p_worker text, p_slots int)
returns table (worker_id text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_stopped timestamptz;
begin
    perform semel.project_require(p_project);
    if p_slots not between 1 and 10000 then
        raise exception using errcode = 'SMQ01', message = 'a number of slots that is none',
            hint = 'Slots are 1 to 10000; to have a worker claim nothing, drain it.';
    end if;
    select w.stopped_at into v_stopped from semel.worker as w
    where w.project_id = p_project and w.worker_id = p_worker for update;
    if not found then
        return query select p_worker, 'unknown';
    elsif v_stopped is not null then
        return query select p_worker, 'refused';
    else
        update semel.worker as w set slots_told = p_slots
        where w.project_id = p_project and w.worker_id = p_worker;
        return query select p_worker, 'won';
    end if;
end
$$;

-- A worker takes its leave; what it still holds, such as a claim whose answer it never read, is
-- given back unharmed.
create or replace function semel.worker_stop(p_project text, p_worker text, p_now timestamptz default null) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_runs   uuid[];
    v_fences bigint[];
begin
    perform semel.project_require(p_project);
    select array_agg(r.run_id order by r.run_id), array_agg(r.fence order by r.run_id) into v_runs, v_fences
    from semel.worker as w cross join unnest(w.agents) as served(agent)
    join semel.run as r on r.project_id = p_project and r.agent = served.agent and r.worker_id = w.worker_id
    where w.project_id = p_project and w.worker_id = p_worker;
    if v_runs is not null then
        perform semel.run_release(p_project, p_worker, v_runs, v_fences, v_now);
    end if;
    update semel.worker as w set stopped_at = v_now
    where w.project_id = p_project and w.worker_id = p_worker;
end
$$;
