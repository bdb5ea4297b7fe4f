-- Tools: a call is a run of its own, and its caller is parked meanwhile.
--
--   asked (with the parking of the caller) ──> ASKED ──send──> SENT ──answer, once──> ANSWERED, FAILED
--                                               │ ^──unsent─────┘ ├──started, and nobody knows──> UNKNOWN
--                                               ├──cannot be──> REFUSED
--                                               ├──(either) its time is over──> TIMED_OUT
--                                               └──nobody waits any more──> VOID
--
-- The answer is the result of the call's run: its worker's, or what the tool posts to its token.
--   Whichever ends that run first is the answer; the other is told `lost`, or `already`.
-- Fence: asking is the parking worker's (run, fence, worker); sending names those of the call's run.
-- Locks: run (a caller before its call), then tool, wait, step.
-- Clock: p_now, or the server's; what is due is judged after the run's lock.

-- Ask, in the transaction that parks the run: start the run that makes the call. Asked again by the
-- same step there is the same call, whatever became of it, unless it was never sent and never will be.
-- p_tool: {server, tool, arguments, key, callback, attempts}. Internal; the caller holds the run's lock.
create or replace function semel.tool_ask(
    p_project text, p_run semel.run, p_key text, p_tool jsonb, p_now timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_old   semel.tool;
    v_call  uuid := semel.uuid_at(p_now);
    -- A function has an agent of its own, so that only programs that have it claim its calls.
    v_agent text := case p_tool ->> 'server' when 'agents' then p_tool ->> 'tool'
                    when 'app' then 'semel.tool.' || (p_tool ->> 'tool') else 'semel.tool' end;
    v_due   timestamptz;
begin
    if p_tool ->> 'server' = 'agents' and starts_with(v_agent, 'semel.') then
        raise exception using errcode = 'SMQ01', message = 'an agent whose name begins with semel.',
            hint = 'Those are Semel''s own, and started by it alone.';
    end if;
    select * into v_old from semel.tool as t
    where t.project_id = p_project and t.run_id = p_run.run_id and t.step_key = p_key for update;
    if found and v_old.state <> 'VOID' and (v_old.round >= 0
        or coalesce(semel.run_status(p_project, v_old.call_id), 'FAILED') not in ('FAILED', 'CANCELLED')) then
        v_call := v_old.call_id;
    else
        select w.due_at into v_due from semel.wait as w
        where w.project_id = p_project and w.run_id = p_run.run_id and w.step_key = p_key;
        -- The wait ends it in time; this ends one whose caller has gone.
        perform semel.run_spawn(p_project, v_call, v_agent,
            case when p_tool ->> 'server' = 'agents' then p_tool -> 'arguments'
                 else p_tool - 'attempts' end,
            p_run.run_id, 'child', p_run.priority, p_now, v_due + interval '1 minute', null, (p_tool ->> 'attempts')::int);
        insert into semel.tool as t (project_id, run_id, step_key, call_id, server, tool, tool_key, asked_at)
        values (p_project, p_run.run_id, p_key, v_call, p_tool ->> 'server', p_tool ->> 'tool', p_tool ->> 'key', p_now)
        on conflict on constraint tool_pkey do update set
            call_id = excluded.call_id, state = 'ASKED', asked_at = excluded.asked_at;
    end if;
    update semel.wait as w set child_id = v_call
    where w.project_id = p_project and w.run_id = p_run.run_id and w.step_key = p_key;
end
$$;

-- May the run p_run, which p_worker holds, send its call now? Round 0 is the call; each next one
-- resumes a sealed state, and is sent once whatever the tool allows. A call that was sent and not
-- answered is sent again only if the tool had said, when it was first sent, that it may be.
-- p_token_hash: of what the tool may answer with later.
-- outcome: won (the intent is journaled, send it); sent (before, and not to be repeated); gone (nobody
--   waits any more); lost. repeatable: should no answer come, it may be sent again. seconds_left: until
--   its caller waits no longer.
create or replace function semel.tool_send(
    p_project text, p_worker text, p_run uuid, p_fence bigint, p_round int, p_repeatable boolean,
    p_token_hash bytea default null, p_now timestamptz default null
) returns table (outcome text, repeatable boolean, seconds_left double precision)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now  timestamptz;
    v_run  semel.run;
    v_tool semel.tool;
    v_due  timestamptz;
begin
    perform semel.project_require(p_project);
    select * into v_run from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for no key update;
    if not found then
        return query select 'lost', false, 0::double precision;
        return;
    end if;
    select * into v_tool from semel.tool as t where t.project_id = p_project and t.call_id = p_run for update;
    v_now := coalesce(p_now, clock_timestamp());
    select w.due_at into v_due from semel.wait as w
    where w.project_id = p_project and w.run_id = v_tool.run_id and w.step_key = v_tool.step_key and w.child_id = p_run;
    if not found or v_due <= v_now then
        update semel.tool as t set state = 'VOID', answered_at = v_now
        where t.project_id = p_project and t.call_id = p_run and t.round < 0;
        return query select 'gone', false, 0::double precision;
        return;
    end if;
    v_tool.repeatable := p_round = 0 and (case when v_tool.round < 0 then p_repeatable else v_tool.repeatable end);
    if p_round <> v_tool.round + 1 and not v_tool.repeatable then
        return query select 'sent', false, extract(epoch from v_due - v_now)::double precision;
        return;
    end if;
    update semel.tool as t set state = 'SENT', round = p_round, sends = t.sends + 1, repeatable = v_tool.repeatable,
        sent_at = coalesce(t.sent_at, v_now)
    where t.project_id = p_project and t.call_id = p_run;
    if p_token_hash is not null then
        insert into semel.tool_token (project_id, token_hash, run_id, minted_at)
        values (p_project, p_token_hash, p_run, v_now)
        on conflict on constraint tool_token_pkey do nothing;
    end if;
    -- An intent of the call, and of no undo: it does not make the run one that is undone.
    perform semel.step_put(p_project, v_run, case when p_round = 0 then 'call' else format('resume %s', p_round) end,
        'intent', 'tool', null, jsonb_build_object('server', v_tool.server, 'tool', v_tool.tool, 'key', v_tool.tool_key,
                                                   'send', v_tool.sends + 1, 'repeatable', v_tool.repeatable), v_now);
    return query select 'won', v_tool.repeatable, extract(epoch from v_due - v_now)::double precision;
end
$$;

-- What was to be sent never left: the connection was refused. outcome: won or lost.
create or replace function semel.tool_unsend(
    p_project text, p_worker text, p_run uuid, p_fence bigint, p_round int, p_now timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    perform from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for no key update;
    if not found then
        return 'lost';
    end if;
    -- Of several sendings an earlier one may have arrived.
    update semel.tool as t set round = case when t.sends > p_round + 1 then t.round else p_round - 1 end,
        sends = t.sends - 1, sent_at = case when t.sends > 1 then t.sent_at end,
        state = case when t.sends > 1 then t.state else 'ASKED' end
    where t.project_id = p_project and t.call_id = p_run and t.round = p_round;
    return 'won';
end
$$;

-- The answer that a tool posts, by the hash of the token it was given. p_answer: {"result": …} or
-- {"error": {…}}. outcome: won (the caller goes on); already (the call has ended, however); unknown.
create or replace function semel.tool_answer(
    p_project text, p_token_hash bytea, p_answer text, p_now timestamptz default null
) returns table (call_id uuid, run_id uuid, outcome text, state text, agent text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now    timestamptz;
    v_call   uuid;
    v_run    semel.run;
    v_tool   semel.tool;
    v_answer jsonb := p_answer::jsonb;
begin
    perform semel.project_require(p_project);
    if jsonb_typeof(v_answer) is distinct from 'object' or not (v_answer ? 'result' or v_answer ? 'error') then
        raise exception using errcode = 'SMQ01', message = 'an answer that is neither a result nor an error',
            hint = 'Send {"result": …} or {"error": …}.';
    end if;
    select t.run_id into v_call from semel.tool_token as t
    where t.project_id = p_project and t.token_hash = p_token_hash;
    if not found then
        return query select null::uuid, null::uuid, 'unknown', null::text, null::text;
        return;
    end if;
    perform semel.run_lock(p_project, array[v_call], true);
    select * into v_run from semel.run as r where r.project_id = p_project and r.run_id = v_call for update;
    v_now := coalesce(p_now, clock_timestamp());
    if found and exists (
        select from semel.tool as t join semel.wait as w
            on w.project_id = p_project and w.run_id = t.run_id and w.step_key = t.step_key and w.child_id = v_call
        where t.project_id = p_project and t.call_id = v_call and w.due_at > v_now
    ) then
        update semel.tool as t set via = 'callback' where t.project_id = p_project and t.call_id = v_call;
        perform semel.step_put(p_project, v_run, 'callback', 'result', 'tool', null, v_answer, v_now);
        update semel.run as r set fence = r.fence + 1 where r.project_id = p_project and r.run_id = v_call;
        perform semel.run_end(p_project, v_run.worker_id, array[v_call], array[v_run.fence + 1], 'COMPLETED', null, null,
                              array[v_answer::text], v_now);
        select * into v_tool from semel.tool as t where t.project_id = p_project and t.call_id = v_call;
        return query select v_call, v_tool.run_id, 'won', v_tool.state, (
            select r.agent from semel.run as r where r.project_id = p_project and r.run_id = v_tool.run_id);
        return;
    end if;
    select * into v_tool from semel.tool as t where t.project_id = p_project and t.call_id = v_call;
    return query select v_call, v_tool.run_id, 'already', v_tool.state, null::text;
end
$$;

-- What the caller's step is told, once there is something: {result}, {error}, {rejected}, {refused},
-- {unknown}, {timed_out}. Internal to wait_look, which holds the caller's lock and knows its wait.
create or replace function semel.tool_outcome(
    p_project text, p_run uuid, p_key text, p_call uuid, p_due timestamptz, p_now timestamptz
) returns jsonb
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_tool   semel.tool;
    v_end    semel.run_history;
    v_answer jsonb;
begin
    select * into v_tool from semel.tool as t
    where t.project_id = p_project and t.run_id = p_run and t.step_key = p_key for update;
    select * into v_end from semel.run_history as h
    where h.project_id = p_project and h.run_id = p_call
    order by h.finished_at desc limit 1;
    if v_end.status = 'COMPLETED' and v_tool.server = 'agents' then
        v_answer := jsonb_build_object('result', coalesce(v_end.result, 'null'));
    elsif v_end.status = 'COMPLETED' and not v_end.result ? 'void' then
        v_answer := v_end.result;
    elsif p_due <= p_now then
        v_answer := jsonb_build_object('timed_out', true, 'sent', v_tool.round >= 0 or v_tool.server = 'agents');
    elsif v_end.run_id is not null and (v_tool.server = 'agents' or v_end.failure_code = 'E-APPROVAL-002') then
        v_answer := jsonb_build_object('error', jsonb_build_object(
            'code', v_end.failure_code, 'message', format('run %s is %s: %s', v_end.run_id, v_end.status, v_end.failure_reason)));
    elsif v_end.run_id is not null then
        v_answer := jsonb_build_object(case when v_tool.round >= 0 then 'unknown' else 'refused' end,
            format('%s %s', coalesce(v_end.failure_code, v_end.status), coalesce(v_end.failure_reason, 'nobody waits for it')));
    elsif semel.run_status(p_project, p_call) is null then
        v_answer := jsonb_build_object('unknown', 'it ended so long ago that its history is no longer kept');
    else
        return null;
    end if;
    update semel.tool as t set answered_at = p_now, via = coalesce(t.via, case when v_end.status = 'COMPLETED' then 'call' end),
        state = case when v_answer ? 'result' then 'ANSWERED' when v_answer ? 'error' or v_answer ? 'rejected' then 'FAILED'
                     when v_answer ? 'refused' then 'REFUSED' when v_answer ? 'timed_out' then 'TIMED_OUT' else 'UNKNOWN' end
    where t.project_id = p_project and t.run_id = p_run and t.step_key = p_key;
    return v_answer || jsonb_build_object('call_id', p_call);
end
$$;
