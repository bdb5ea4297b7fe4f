-- Children: runs that a run starts.
--
--   parent's step ──spawn──> child PENDING ──> ended ──> the parent, where it waits, is RESUMED
--
-- Fence: spawning is a step of the parent: (run, fence, worker). A child is once for each step key.
-- Locks: parent, then child. A child that ends locks its parent first.
-- Clock: p_now, or the server's.

-- Insert one run that belongs to another. Internal.
create or replace function semel.run_spawn(
    p_project text, p_run uuid, p_agent text, p_input jsonb, p_parent uuid, p_kind text, p_priority int,
    p_now timestamptz, p_deadline timestamptz default null, p_due timestamptz default null, p_max_attempts int default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_large boolean := semel.input_is_large(p_input);
begin
    perform semel.agent_require(p_agent);
    if p_priority not between 0 and 9 or p_max_attempts < 1 then
        raise exception using errcode = 'SMQ01',
            message = 'a priority or max_attempts that is none',
            hint = 'A priority is 0 (last) to 9 (first); max_attempts is at least 1.';
    end if;
    insert into semel.run (project_id, run_id, agent, kind, status, lane, priority, max_attempts, ready_at, due_at,
        deadline_at, input, parent_run_id, created_at)
    values (p_project, p_run, p_agent, p_kind, 'PENDING', semel.run_lane('PENDING', p_priority, false), p_priority,
        p_max_attempts, case when p_due is null then p_now end, p_due, p_deadline,
        case when not v_large then p_input end, p_parent, p_now);
    if v_large then
        insert into semel.run_input (project_id, run_id, input) values (p_project, p_run, p_input);
    end if;
end
$$;

-- Start a child as the step p_key of a run that p_worker holds. outcome: won; already, with the child
-- that this step has started before; lost.
create or replace function semel.child_start(
    p_project text, p_worker text, p_run uuid, p_fence bigint, p_key text, p_place int, p_agent text, p_input text,
    p_priority int default 5, p_max_attempts int default null, p_delay interval default null,
    p_deadline interval default null, p_now timestamptz default null
) returns table (run_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_run   semel.run;
    v_child uuid := semel.uuid_at(v_now);
    v_old   jsonb;
begin
    perform semel.project_require(p_project);
    perform semel.key_require(array[p_key]);
    select * into v_run from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for update;
    if not found then
        return query select null::uuid, 'lost';
        return;
    end if;
    select s.content into v_old from semel.step as s
    where s.project_id = p_project and s.run_id = p_run and s.step_key = p_key and s.entry = 'result';
    if found then
        return query select (v_old ->> 'run_id')::uuid, 'already';
        return;
    end if;
    perform semel.run_spawn(p_project, v_child, p_agent, coalesce(p_input::jsonb, 'null'), p_run, 'child', p_priority,
                            v_now, v_now + p_deadline, v_now + p_delay, p_max_attempts);
    perform semel.step_put(p_project, v_run, p_key, 'result', 'spawn', p_place,
                           jsonb_build_object('run_id', v_child, 'agent', p_agent), v_now);
    return query select v_child, 'won';
end
$$;
