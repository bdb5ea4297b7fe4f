-- Agents: what an operator may set beside what the code says.
--
-- Locks: agent.
-- Clock: p_now, or the server's.

-- Claim no run of p_agent until it is resumed; what is running goes on. Also for an agent that no
-- worker has announced yet. outcome: won or already.
create or replace function semel.agent_pause(p_project text, p_agent text, p_now timestamptz default null)
returns table (agent text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    perform semel.agent_require(p_agent);
    insert into semel.agent as a (project_id, agent, max_attempts, executor, paused_at)
    values (p_project, p_agent, 3, 'async', v_now)
    on conflict on constraint agent_pkey do update set paused_at = excluded.paused_at where a.paused_at is null;
    return query select p_agent, case when found then 'won' else 'already' end;
end
$$;

-- outcome: won, or already when it was not paused.
create or replace function semel.agent_resume(p_project text, p_agent text)
returns table (agent text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    update semel.agent as a set paused_at = null
    where a.project_id = p_project and a.agent = p_agent and a.paused_at is not null;
    return query select p_agent, case when found then 'won' else 'already' end;
end
$$;

-- How many runs of p_project may be leased at once over all agents; null: no limit.
create or replace function semel.project_limit(p_project text, p_max_running int, p_now timestamptz default null)
returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    insert into semel.project (project_id, created_at, max_running) values (p_project, v_now, p_max_running)
    on conflict on constraint project_pkey do update set max_running = excluded.max_running;
end
$$;

-- Set limits of an agent beside what its code says; they hold until agent_clear. p_what: which of
-- concurrency, rate and per_limit; null in its argument: no limit (of a key there always is one).
-- Nothing that runs is stopped by a lower one: nothing is claimed until less runs than it allows.
-- outcome: won, or already when each was set so before.
create or replace function semel.agent_set(
    p_project text, p_agent text, p_what text[], p_max_running int default null, p_claims int default null,
    p_span interval default null, p_key_limit int default null, p_now timestamptz default null
) returns table (agent text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_won boolean;
begin
    perform semel.project_require(p_project);
    perform semel.agent_require(p_agent);
    if p_max_running < 1 or p_key_limit < 1 or 'per_limit' = any (p_what) and p_key_limit is null then
        raise exception using errcode = 'SMQ01', message = 'a limit below 1',
            hint = 'A limit is 1 or more. To have no run of an agent claimed, pause it.';
    end if;
    if (p_claims is null) <> (p_span is null) or p_claims not between 1 and 1000000
       or p_span not between interval '1 ms' and interval '24 hours' then
        raise exception using errcode = 'SMQ01', message = 'a rate that is none',
            hint = 'A rate is 1 to 1000000 claims in 1 ms to 24 hours. To have no run of an agent claimed, pause it.';
    end if;
    insert into semel.agent (project_id, agent, max_attempts, executor) values (p_project, p_agent, 3, 'async')
    on conflict on constraint agent_pkey do nothing;
    perform from semel.agent as a where a.project_id = p_project and a.agent = p_agent for update;
    update semel.agent as a set
        max_running = case when 'concurrency' = any (p_what) then p_max_running else a.max_running end,
        rate_claims = case when 'rate' = any (p_what) then p_claims else a.rate_claims end,
        rate_span = case when 'rate' = any (p_what) then p_span else a.rate_span end,
        key_limit = case when 'per_limit' = any (p_what) then p_key_limit else a.key_limit end,
        edits = array(select distinct e.what from unnest(a.edits || p_what) as e(what) order by e.what)
    where a.project_id = p_project and a.agent = p_agent
      and (not p_what <@ a.edits
           or 'concurrency' = any (p_what) and a.max_running is distinct from p_max_running
           or 'rate' = any (p_what) and (a.rate_claims, a.rate_span) is distinct from (p_claims, p_span)
           or 'per_limit' = any (p_what) and a.key_limit is distinct from p_key_limit);
    v_won := found;
    perform semel.bucket_make(p_project, array[p_agent], v_now);
    if v_won and 'per_limit' = any (p_what) then
        perform semel.key_look(p_project, p_now => v_now);
    end if;
    return query select p_agent, case when v_won then 'won' else 'already' end;
end
$$;

-- Let the code say again what an operator has set. p_what: which; null: all.
-- outcome: won, or already when none of them was set.
create or replace function semel.agent_clear(
    p_project text, p_agent text, p_what text[] default null, p_now timestamptz default null
) returns table (agent text, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_what text[] := coalesce(p_what, '{concurrency,rate,per_limit}');
    v_won  boolean;
begin
    perform semel.project_require(p_project);
    update semel.agent as a set
        max_running = case when 'concurrency' = any (v_what) then a.code_running else a.max_running end,
        rate_claims = case when 'rate' = any (v_what) then a.code_claims else a.rate_claims end,
        rate_span = case when 'rate' = any (v_what) then a.code_span else a.rate_span end,
        key_limit = case when 'per_limit' = any (v_what) then a.code_key_limit else a.key_limit end,
        edits = array(select e.what from unnest(a.edits) as e(what) where e.what <> all (v_what) order by e.what)
    where a.project_id = p_project and a.agent = p_agent and a.edits && v_what;
    v_won := found;
    if v_won then
        perform semel.key_look(p_project, p_now => v_now);
    end if;
    return query select p_agent, case when v_won then 'won' else 'already' end;
end
$$;
