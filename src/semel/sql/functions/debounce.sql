-- Debounce: calls that come one soon after another become one run, with the last one's input.
--
--   first call ──> run due after the quiet time ──call before it is claimed──> its input is the call's,
--                    │                                and it is due a quiet time after the call
--                    └──claimed, ended, or touched by an operator──> the next call starts another run
--
-- Fence: a run that nobody has held has fence 0; only such a one takes another input. A claim and a
--   call wait for each other at the run's row, so a call's input is either executed or starts a run.
-- Locks: debounce by key, then run; who may go in its place is skipped where another holds it.
-- Clock: p_now, or the server's, read after the key's lock.

-- Start a run of p_agent that becomes ready p_quiet from now, or put p_input into the run that the
-- last call of p_key started, and put it off so long, but never beyond p_max after its first call. A run
-- that is ready, and not claimed yet, keeps its place. Priority and max_attempts are the first call's.
-- outcome: new or replaced.
create or replace function semel.run_debounce(
    p_project text, p_agent text, p_input text, p_key text, p_quiet interval, p_max interval default null,
    p_priority int default 5, p_max_attempts int default null, p_now timestamptz default null
) returns table (run_id uuid, outcome text, calls int)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_run   uuid := semel.uuid_at(clock_timestamp());
    v_input jsonb := coalesce(p_input::jsonb, 'null');
    v_large boolean := semel.input_is_large(v_input);
    v_ours  boolean;
    v_row   semel.debounce;
    v_key   text;
begin
    perform semel.project_require(p_project);
    if p_key is null or octet_length(p_key) not between 1 and 1024 or p_quiet is null or p_quiet <= '0' or p_max < p_quiet then
        raise exception using errcode = 'SMQ01',
            message = 'a debounce without a key, without a quiet time, or with a longest wait below it',
            hint = 'Give a key of 1 to 1024 bytes, a quiet time above 0, and a longest wait of at least that.';
    end if;
    for v_round in 1 .. 3 loop
        insert into semel.debounce (project_id, agent, debounce_key, run_id, calls, latest_at)
        values (p_project, p_agent, p_key, v_run, 1, v_now + p_max)
        on conflict on constraint debounce_pkey do nothing;
        v_ours := found;
        exit when v_ours;
        select * into v_row from semel.debounce as d
        where d.project_id = p_project and d.agent = p_agent and d.debounce_key = p_key
        for update;
        exit when found;
        if v_round = 3 then
            raise exception using errcode = '40001', message = 'a key was used and purged again and again';
        end if;
    end loop;
    v_now := coalesce(p_now, clock_timestamp());
    if not v_ours then
        select r.concurrency_key into v_key from semel.run as r
        where r.project_id = p_project and r.run_id = v_row.run_id and r.status = 'PENDING' and r.fence = 0
        for update;
        if found then
            update semel.run as r set
                input = case when not v_large then v_input end,
                due_at = case when r.due_at is not null then least(v_now + p_quiet, v_row.latest_at) end
            where r.project_id = p_project and r.run_id = v_row.run_id;
            delete from semel.run_input as i where i.project_id = p_project and i.run_id = v_row.run_id;
            if v_large then
                insert into semel.run_input (project_id, run_id, input) values (p_project, v_row.run_id, v_input);
            end if;
            if v_key <> coalesce(semel.key_of(v_input, (
                select a.key_path from semel.agent as a where a.project_id = p_project and a.agent = p_agent)), '') then
                -- A claim has looked at it under the last input's key: it is to be looked at anew.
                update semel.run as r set concurrency_key = null, lane = semel.run_lane('PENDING', r.priority, false),
                    ready_at = v_now
                where r.project_id = p_project and r.run_id = v_row.run_id;
                perform semel.key_freed(p_project, array[p_agent], array[v_key], v_now);
            end if;
            update semel.debounce as d set calls = d.calls + 1
            where d.project_id = p_project and d.agent = p_agent and d.debounce_key = p_key;
            return query select v_row.run_id, 'replaced', v_row.calls + 1;
            return;
        end if;
    end if;
    perform semel.run_create(p_project, array[v_run], array[p_agent], array[v_input], array[p_priority],
                             array[p_max_attempts], array['api'], array[null::uuid], v_now + p_quiet);
    update semel.debounce as d set run_id = v_run, calls = 1, latest_at = v_now + p_max
    where d.project_id = p_project and d.agent = p_agent and d.debounce_key = p_key;
    return query select v_run, 'new', 1;
end
$$;

-- Forget keys whose run was made p_keep ago and lives no longer; p_limit at most.
create or replace function semel.debounce_expire(
    p_project text, p_keep interval default '1 day', p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with old as materialized (
        select d.agent, d.debounce_key from semel.debounce as d
        where d.project_id = p_project and d.run_id < semel.uuid_floor(v_now - p_keep)
          and not exists (select from semel.run as r where r.project_id = p_project and r.run_id = d.run_id)
        order by d.run_id limit p_limit
        for update of d skip locked
    ), gone as (
        delete from semel.debounce as d using old as o
        where d.project_id = p_project and d.agent = o.agent and d.debounce_key = o.debounce_key
        returning 1
    )
    select count(*) into v_count from gone;
    return v_count;
end
$$;
