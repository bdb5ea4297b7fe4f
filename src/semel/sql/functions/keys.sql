-- Keys: no more runs of one concurrency key are leased at once than their agent allows.
--
--   ready ──its key is full──> waits apart (lane 200 and more) ──a slot of the key is free──> ready again,
--     └──claim──> RUNNING                                       ahead of those of its priority (lane 20 to 30)
--
-- A claim looks at a run whose key is full once, and moves it out of its way: no queue is walked again.
-- Who waits apart is never forgotten: a claim moves a run away only while it holds the rows of all that
--   hold its key, so that the end of each comes after, sees who waits (key_freed), and lets one go.
-- Locks: agent, so that one claim counts at a time; then runs. Whatever another holds is skipped.
-- Clock: the caller's.

-- Refuse a concurrency key that is none.
create or replace function semel.concurrency_key_require(p_key text) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
    if length(p_key) not between 1 and 255 then
        raise exception using errcode = 'SMQ01', message = 'a concurrency key that is none',
            hint = 'A concurrency key is 1 to 255 characters.';
    end if;
end
$$;

-- The key that p_path (a.b.c) names in an input: a text, number or truth; null where there is none.
create or replace function semel.key_of(p_input jsonb, p_path text) returns text
language sql immutable set search_path = pg_catalog as $$
    select case when length(v.key) > 255 then 'sha256:' || encode(sha256(convert_to(v.key, 'UTF8')), 'hex')
                when v.key <> '' then v.key end
    from (select p_input #>> string_to_array(p_path, '.') as key
          where jsonb_typeof(p_input #> string_to_array(p_path, '.')) in ('string', 'number', 'boolean')) as v
$$;

-- What becomes of the runs that a claim would take, in their order: go; wait, and then it stands apart
-- now; or busy: its key is full, and who holds it is just moving, so it is left for the next claim.
-- p_path, p_limit: of the agent; null: no path, and one run of a key. Internal; the caller has locked the runs.
create or replace function semel.key_admit(
    p_project text, p_agent text, p_runs uuid[], p_path text, p_limit int, p_now timestamptz
) returns text[]
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_limit    int := coalesce(p_limit, 1);
    v_keys     text[];
    v_verdicts text[];
begin
    v_keys := array(
        select coalesce(r.concurrency_key, case when p_path is not null and r.kind in ('work', 'child') then
            semel.key_of(coalesce(r.input, (select i.input from semel.run_input as i
                                            where i.project_id = p_project and i.run_id = r.run_id)), p_path) end)
        from unnest(p_runs) with ordinality as x(run_id, n)
        join semel.run as r on r.project_id = p_project and r.run_id = x.run_id
        order by x.n);
    if not exists (select from semel.agent as a where a.project_id = p_project and a.agent = p_agent) then
        insert into semel.agent (project_id, agent, max_attempts, executor) values (p_project, p_agent, 3, 'async')
        on conflict on constraint agent_pkey do nothing;
    end if;
    perform from semel.agent as a where a.project_id = p_project and a.agent = p_agent for update skip locked;
    if not found then
        return array(select case when k.key is null then 'go' else 'busy' end
                     from unnest(v_keys) with ordinality as k(key, n) order by k.n);
    end if;
    with asked as materialized (
        select x.key, x.n, row_number() over (partition by x.key order by x.n) as turn
        from unnest(v_keys) with ordinality as x(key, n)
    ), counted as materialized (
        select k.key, k.asking, h.held, v_limit - h.held as room
        from (select a.key, count(*) as asking from asked as a where a.key is not null group by a.key) as k
        cross join lateral (
            select count(*) as held from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.concurrency_key = k.key
              and r.worker_id is not null) as h
    ), firm as materialized (
        -- Who is locked is about to end, or was just seen to: it may not see who waits.
        select c.key, count(*) as held from counted as c
        cross join lateral (
            select from semel.run as r
            where r.project_id = p_project and r.agent = p_agent and r.concurrency_key = c.key
              and r.worker_id is not null
            for share skip locked) as r
        where c.asking > c.room
        group by c.key
    )
    select array_agg(case when a.key is null or a.turn <= c.room then 'go'
                          when coalesce(f.held, 0) + greatest(c.room, 0) >= v_limit then 'wait'
                          else 'busy' end order by a.n)
    into v_verdicts
    from asked as a left join counted as c on c.key = a.key left join firm as f on f.key = a.key;
    update semel.run as r set
        concurrency_key = x.key,
        lane = case when x.verdict = 'wait' then 200 + r.lane - case when r.lane between 20 and 30 then 20 else 0 end
                    else r.lane end
    from unnest(p_runs, v_keys, v_verdicts) as x(run_id, key, verdict)
    where r.project_id = p_project and r.run_id = x.run_id
      and (x.verdict = 'wait' or x.verdict = 'go' and x.key is not null and r.concurrency_key is null);
    return v_verdicts;
end
$$;

-- Runs with these keys, each of its agent, are held no longer: let go who waits, as many as there is
-- room for. Answers how many. Internal; who calls it has freed them in an earlier statement.
create or replace function semel.key_freed(p_project text, p_agents text[], p_keys text[], p_now timestamptz) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_count int;
begin
    with freed as materialized (
        select distinct x.agent, x.key from unnest(p_agents, p_keys) as x(agent, key)
        where exists (select from semel.run as r where r.project_id = p_project and r.agent = x.agent
                      and r.concurrency_key = x.key and r.lane >= 200)
    ), room as materialized (
        select f.agent, f.key, greatest(0, coalesce((
            select a.key_limit from semel.agent as a where a.project_id = p_project and a.agent = f.agent), 1) - (
            select count(*) from semel.run as r
            where r.project_id = p_project and r.agent = f.agent and r.concurrency_key = f.key
              and r.worker_id is not null)) as n
        from freed as f
    ), next as materialized (
        select n.run_id, row_number() over (order by n.lane, n.ready_at, n.run_id) as turn
        from room as m cross join lateral (
            select r.run_id, r.lane, r.ready_at from semel.run as r
            where r.project_id = p_project and r.agent = m.agent and r.concurrency_key = m.key and r.lane >= 200
            order by r.lane, r.ready_at, r.run_id
            limit m.n
            for update skip locked) as n
    ), let as (
        -- Ready as of now, in their order: claimers remember how far they have come in a lane.
        update semel.run as r set ready_at = p_now + (n.turn - 1) * interval '1 microsecond',
            lane = r.lane - 200 + case when r.lane < 300 then 20 else 0 end
        from next as n
        where r.project_id = p_project and r.run_id = n.run_id
        returning 1
    )
    select count(*) into v_count from let;
    return v_count;
end
$$;

-- Let go who waits for a key that has room: a limit was raised, or another transaction held who waits
-- (an operator's, a call's that is debounced) when its key was freed. Answers how many; p_limit keys at most.
create or replace function semel.key_look(
    p_project text, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_agents text[];
    v_keys   text[];
begin
    perform semel.project_require(p_project);
    with recursive waiting as (
        (select r.agent, r.concurrency_key from semel.run as r where r.project_id = p_project and r.concurrency_key is not null and r.lane >= 200
         order by r.agent, r.concurrency_key limit 1)
        union all
        select n.agent, n.concurrency_key from waiting as w cross join lateral (
            select r.agent, r.concurrency_key from semel.run as r
            where r.project_id = p_project and r.concurrency_key is not null and r.lane >= 200
              and (r.agent, r.concurrency_key) > (w.agent, w.concurrency_key)
            order by r.agent, r.concurrency_key limit 1) as n
    )
    select array_agg(w.agent), array_agg(w.concurrency_key) into v_agents, v_keys
    from (select k.* from waiting as k
          where coalesce((select a.key_limit from semel.agent as a where a.project_id = p_project and a.agent = k.agent), 1) > (
                select count(*) from semel.run as r
                where r.project_id = p_project and r.agent = k.agent and r.concurrency_key = k.concurrency_key
                  and r.worker_id is not null)
          limit p_limit) as w;
    return case when v_agents is null then 0 else semel.key_freed(p_project, v_agents, v_keys, v_now) end;
end
$$;
