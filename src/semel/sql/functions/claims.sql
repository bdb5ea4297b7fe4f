-- Claims: where runs wait, and who gets them.
--
--   PENDING, RESUMED ──due──> ready ──hint──> a worker asks ──claim──> RUNNING
--
-- A queue is an agent's, of one version of its code, in one lane. Version '' is the queue of runs
--   that no versioned worker has begun; the first that claims one pins it to its own version, and
--   from then on workers of that version alone look where it waits.
-- Fence: a claim makes it larger.
-- Locks: project, agent and its bucket where they limit, then run; then the agent of runs that have a
--   key. A claim skips what another holds, and waits for nobody.
-- Clock: p_now, or the server's, read once.

-- Lease up to p_limit ready runs of p_agent to p_worker until now + p_lease; the claim is a beat.
-- p_version: of the worker's code for p_agent, '' for none; each run that no version began is pinned
--   to it. There is no way to ask for another version's.
-- p_lanes: where to look, in this order; p_own: for each, whether among the runs of p_version, else
--   among those of none; p_marks: for each, the ready_at of the last run claimed there. The scan
--   begins 100 ms before the mark and so never walks the dead entries that a pinned snapshot keeps
--   behind it. A mark is the caller's hint, never a truth: run_hint lowers it.
-- p_oldest: the lane whose first run waits longest goes first; every eighth claim asks for it.
-- version: the queue where it waited. journal: of a run that was claimed before, its entries as JSON arrays of (step key, entry, kind,
--   place, attempt, content, detail), oldest first; null: none.
-- A paused agent yields none; one with a limit, or in a project with one, is claimed under its
-- row's lock and never beyond it; each claim of one with a rate is counted in its bucket. A run whose key
-- is full is moved out of the way (key_admit). Concurrent claimers never receive the same run.
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
    p_version      text default '',
    p_own          boolean[] default '{}',
    p_now          timestamptz default null
) returns table (
    run_id uuid, fence bigint, attempt int, max_attempts int, input text,
    source text, event_id uuid, priority int, version text, lane int, ready_at timestamptz,
    kind text, parent_run_id uuid, journal text
)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now      timestamptz := coalesce(p_now, clock_timestamp());
    v_allowed  record;
    v_limit    int;
    v_keyed    boolean;
    v_verdicts text[];
    v_runs     uuid[];
    v_versions text[];
    v_lanes    int[];
    v_ready    timestamptz[];
begin
    perform semel.project_require(p_project);
    if p_version is distinct from '' then
        perform semel.version_require(array[p_version]);
    end if;
    v_allowed := semel.run_allowance(p_project, p_agent, p_limit, v_now);
    v_limit := v_allowed.most;
    if v_limit <= 0 then
        return;
    end if;
    for v_round in 1 .. 8 loop
        select array_agg(c.run_id), array_agg(c.version), array_agg(c.lane), array_agg(c.ready_at),
            bool_or(c.concurrency_key is not null)
        into v_runs, v_versions, v_lanes, v_ready, v_keyed
        from (
            select p.run_id, p.version, p.lane, p.ready_at, p.concurrency_key
            from (select l.version, l.lane, coalesce(l.mark - interval '100 ms', '-infinity') as mark
                  from (select case when u.own then p_version else '' end as version, u.lane, u.mark, u.n
                        from unnest(p_own, p_lanes, p_marks) with ordinality as u(own, lane, mark, n)) as l
                  order by case when p_oldest then (
                        select r.ready_at from semel.run as r
                        where r.project_id = p_project and r.agent = p_agent and r.version = l.version and r.lane = l.lane
                          and r.ready_at is not null and r.ready_at >= coalesce(l.mark - interval '100 ms', '-infinity')
                        order by r.ready_at, r.run_id limit 1) end nulls last, l.n) as l
            cross join lateral (
                select r.run_id, r.version, r.lane, r.ready_at, r.concurrency_key from semel.run as r
                where r.project_id = p_project and r.agent = p_agent and r.version = l.version and r.lane = l.lane
                  and r.ready_at is not null and r.ready_at >= l.mark
                order by r.ready_at, r.run_id
                limit v_limit
                for update skip locked) as p
            limit v_limit) as c;
        v_verdicts := null;
        exit when v_runs is null or not v_keyed and v_allowed.key_path is null;
        v_verdicts := semel.key_admit(p_project, p_agent, v_runs, v_allowed.key_path, v_allowed.key_limit, v_now);
        -- Those that go and those that are busy are found again; in the place of who waits now is the next.
        exit when cardinality(array_positions(v_verdicts, 'go')) >= v_allowed.most
               or cardinality(v_verdicts) < v_limit and 'wait' <> all (v_verdicts);
        -- A flood of one key is walked in longer and longer steps.
        v_limit := v_allowed.most + cardinality(array_positions(v_verdicts, 'busy'))
            + least(1000, 4 * cardinality(array_positions(v_verdicts, 'wait')));
    end loop;
    if v_verdicts is not null then
        select array_agg(g.run_id), array_agg(g.version), array_agg(g.lane), array_agg(g.ready_at)
        into v_runs, v_versions, v_lanes, v_ready
        from (select x.* from unnest(v_runs, v_versions, v_lanes, v_ready, v_verdicts) with ordinality
                  as x(run_id, version, lane, ready_at, verdict, n)
              where x.verdict = 'go' order by x.n limit v_allowed.most) as g;
    end if;
    if v_runs is null then
        return;
    end if;
    if v_allowed.rate_claims is not null then
        perform semel.rate_spend(p_project, p_agent, v_allowed.rate_claims, v_allowed.rate_span, cardinality(v_runs), v_now);
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
                version = p_version,
                worker_id = p_worker,
                lease_until = v_now + p_lease,
                claimed_at = v_now,
                -- Null until the second claim: the first one's moment is claimed_at.
                started_at = coalesce(r.started_at, r.claimed_at),
                ready_at = null,
                due_at = null
            where r.project_id = p_project and r.run_id = any (v_runs)
            returning r.run_id, r.fence, r.attempt_count, r.max_attempts, r.input, r.source, r.event_id, r.priority,
                r.kind, r.parent_run_id
        )
        select c.run_id, c.fence, c.attempt_count, c.max_attempts,
            coalesce(c.input, (select i.input from semel.run_input as i
                               where i.project_id = p_project and i.run_id = c.run_id))::text,
            c.source, c.event_id, c.priority::int, x.version, x.lane, x.ready_at, c.kind, c.parent_run_id,
            case when c.fence > 1 then (
                select jsonb_agg(jsonb_build_array(s.step_key, s.entry, s.kind, s.place, s.attempt, s.content, s.detail)
                                 order by s.position)::text
                from semel.step as s where s.project_id = p_project and s.run_id = c.run_id) end
        from unnest(v_runs, v_versions, v_lanes, v_ready) with ordinality as x(run_id, version, lane, ready_at, n)
        join claimed as c on c.run_id = x.run_id
        order by x.n;
end
$$;

-- How many of p_limit a claim may take: none of a paused agent, and no more than a limit and a rate
-- leave. A limit is counted from live leases, so it heals itself. Locks project, agent and bucket, where
-- they limit: another claim of the same limited agent is told none, and goes on to its next pair.
-- rate_*: what the caller must spend from; key_*: of the agent.
create or replace function semel.run_allowance(
    p_project text, p_agent text, p_limit int, p_now timestamptz,
    out most int, out rate_claims int, out rate_span interval, out key_path text, out key_limit int
)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_agent   record;
    v_project record;
begin
    most := p_limit;
    select a.paused_at, a.max_running, a.rate_claims, a.rate_span, a.key_path, a.key_limit into v_agent from semel.agent as a
    where a.project_id = p_project and a.agent = p_agent;
    select p.max_running into v_project from semel.project as p where p.project_id = p_project;
    if v_agent.paused_at is not null then
        most := 0;
        return;
    end if;
    key_path := v_agent.key_path;
    key_limit := v_agent.key_limit;
    if v_project.max_running is not null then
        select p.max_running into v_project from semel.project as p
        where p.project_id = p_project for update skip locked;
        if not found then
            most := 0;
            return;
        end if;
        most := least(most, v_project.max_running - (
            select count(*) from semel.run as r where r.project_id = p_project and r.worker_id is not null));
    end if;
    if v_agent.max_running is not null then
        select a.max_running into v_agent.max_running from semel.agent as a
        where a.project_id = p_project and a.agent = p_agent for update skip locked;
        if not found then
            most := 0;
            return;
        end if;
        most := least(most, v_agent.max_running - (
            select count(*) from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.worker_id is not null));
    end if;
    if v_agent.rate_claims is not null and most > 0 then
        rate_claims := v_agent.rate_claims;
        rate_span := v_agent.rate_span;
        most := least(most, semel.rate_left(p_project, p_agent, rate_claims, rate_span, p_now));
    end if;
end
$$;

-- Whether the limit of an agent, or of its project, leaves no claim now. Null limits: none. Locks nothing.
create or replace function semel.agent_full(
    p_project text, p_agent text, p_agent_limit int, p_project_limit int
) returns boolean
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    return coalesce(p_agent_limit <= (
            select count(*) from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.worker_id is not null), false)
        or coalesce(p_project_limit <= (
            select count(*) from semel.run as r where r.project_id = p_project and r.worker_id is not null), false);
end
$$;

-- The runs in these states whose time has come, agent by agent: of one agent (null: of each), with
-- one probe for an agent that has runs with a time. Internal; locks nothing.
create or replace function semel.run_due_find(
    p_project text, p_agent text, p_statuses text[], p_limit int, p_now timestamptz
) returns uuid[]
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    return (
        with recursive timed as (
            select coalesce(p_agent, (
                select r.agent from semel.run as r where r.project_id = p_project and r.due_at is not null
                order by r.agent limit 1)) as agent
            union all
            select (select r.agent from semel.run as r
                    where r.project_id = p_project and r.due_at is not null and r.agent > t.agent
                    order by r.agent limit 1)
            from timed as t where t.agent is not null and p_agent is null
        )
        select array(
            select d.run_id from timed as t cross join lateral (
                select r.run_id from semel.run as r
                where r.project_id = p_project and r.agent = t.agent and r.due_at <= p_now and r.status = any (p_statuses)
                order by r.due_at limit p_limit) as d
            limit p_limit));
end
$$;

-- Make what is due claimable: delayed starts, retries, and waits whose time has come. Answers how
-- many runs it moved.
create or replace function semel.run_due(
    p_project text, p_agent text default null, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_runs  uuid[];
    v_count int := 0;
begin
    perform semel.project_require(p_project);
    v_runs := semel.run_due_find(p_project, p_agent, array['PENDING', 'RESUMED'], p_limit, v_now);
    if v_runs <> '{}' then
        with due as (
            update semel.run as r set ready_at = v_now, due_at = null
            where r.project_id = p_project
              and r.run_id = any (array(
                    select c.run_id from semel.run as c
                    where c.project_id = p_project and c.run_id = any (v_runs)
                      and c.due_at <= v_now and c.status in ('PENDING', 'RESUMED')
                    order by c.run_id
                    for update skip locked))
            returning 1
        )
        select count(*) into v_count from due;
    end if;
    return v_count + semel.wait_due(p_project, p_agent, p_limit, p_now);
end
$$;

-- Where the runs of p_agents wait: one row for each (project, agent, version, lane) with a ready run,
-- and the ready_at of its first. The workers' hint, lock-free, across projects; a claim decides.
-- p_versions: of the caller's code, for each of p_agents; '', and none for those beyond the end. Told
-- are the runs of that version and those that no version began.
-- Without marks it looks from the start: it finds what committed late, came back, or is due, and
-- what a clock that stepped back put behind a mark. With marks (arrays of one length) it looks
-- only there, from 100 ms before each, and walks no dead entries. Left out are paused agents, those whose
-- limit is reached, and runs that wait for their key.
-- rate_wait: how long until the agent's rate leaves a claim; null where it leaves one now.
create or replace function semel.run_hint(
    p_agents   text[],
    p_versions text[] default '{}',
    p_projects text[] default null,
    p_of       text[] default null,
    p_begun    text[] default null,
    p_lanes    int[] default null,
    p_marks    timestamptz[] default null,
    p_limit    int default 10000,
    p_now      timestamptz default null
) returns table (project_id text, agent text, version text, lane int, ready_at timestamptz, rate_wait interval)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    if p_projects is not null then
        return query
            select m.project_id, m.agent, m.version, m.lane, h.ready_at,
                case when a.rate_claims is not null then
                    nullif(semel.rate_wait(m.project_id, m.agent, a.rate_claims, a.rate_span, v_now), '0') end
            from unnest(p_projects, p_of, p_begun, p_lanes, p_marks) as m(project_id, agent, version, lane, mark)
            cross join lateral (
                select r.ready_at from semel.run as r
                where r.project_id = m.project_id and r.agent = m.agent and r.version = m.version and r.lane = m.lane
                  and r.ready_at is not null and r.ready_at >= m.mark - interval '100 ms'
                order by r.ready_at, r.run_id limit 1) as h
            left join semel.agent as a on a.project_id = m.project_id and a.agent = m.agent
            left join semel.project as p on p.project_id = m.project_id
            where a.paused_at is null
              and case when a.max_running is null and p.max_running is null then true
                       else not semel.agent_full(m.project_id, m.agent, a.max_running, p.max_running) end;
        return;
    end if;
    -- A loose index scan: one probe for each queue that has work, however much it has.
    return query
        with recursive ready as (
            (select r.project_id, r.agent, r.version, r.lane, r.ready_at from semel.run as r where r.ready_at is not null
             order by r.project_id, r.agent, r.version, r.lane, r.ready_at limit 1)
            union all
            select n.project_id, n.agent, n.version, n.lane, n.ready_at from ready as p cross join lateral (
                select r.project_id, r.agent, r.version, r.lane, r.ready_at from semel.run as r
                where r.ready_at is not null
                  and (r.project_id, r.agent, r.version, r.lane) > (p.project_id, p.agent, p.version, p.lane)
                order by r.project_id, r.agent, r.version, r.lane, r.ready_at limit 1) as n
        ), due as (
            (select r.project_id, r.agent, r.due_at from semel.run as r where r.due_at is not null
             order by r.project_id, r.agent, r.due_at limit 1)
            union all
            select n.project_id, n.agent, n.due_at from due as p cross join lateral (
                select r.project_id, r.agent, r.due_at from semel.run as r
                where r.due_at is not null and (r.project_id, r.agent) > (p.project_id, p.agent)
                order by r.project_id, r.agent, r.due_at limit 1) as n
        )
        select w.project_id, w.agent, w.version, w.lane, w.ready_at,
            case when a.rate_claims is not null and w.lane is not null then
                nullif(semel.rate_wait(w.project_id, w.agent, a.rate_claims, a.rate_span, v_now), '0') end
        from (select r.project_id, r.agent, r.version, r.lane::int as lane, r.ready_at from ready as r where r.lane < 200
              union all
              -- Due, and not yet ready: no lane. The worker makes it ready first, of whatever version.
              select d.project_id, d.agent, '', null, d.due_at from due as d where d.due_at <= v_now) as w
        left join semel.agent as a on a.project_id = w.project_id and a.agent = w.agent
        left join semel.project as p on p.project_id = w.project_id
        where exists (select from unnest(p_agents, p_versions) as s(agent, version)
                      where s.agent = w.agent and w.version in ('', s.version))
          and a.paused_at is null
          and case when a.max_running is null and p.max_running is null or w.lane is null then true
                   else not semel.agent_full(w.project_id, w.agent, a.max_running, p.max_running) end
        limit p_limit;
end
$$;
