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
