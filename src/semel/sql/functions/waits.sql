-- Waits: a run leaves its worker and comes back when what it waits for is there.
--
--   RUNNING ──park──> WAITING_TOOL (sleep, retry, signal, child, tool) ──there, or due──> RESUMED
--      ^       │  └─> WAITING_APPROVAL ──decided──────────────────────────────────> RESUMED
--      └───────┘                 └──its time is over──> FAILED (E-APPROVAL-002)
--     it is there already
--
-- What is waited for leaves its answer in the journal, as the result of the waiting step: whoever
--   comes first, the wait or the answer, the other finds it.
-- Fence: parking names (run, fence, worker); parking and resuming make the fence larger.
-- Locks: run, then approval, signal, wait, step. The sweep skips what another holds.
-- Clock: p_now, or the server's; what is due is judged after the run's lock.

-- Park a run that p_worker holds until one of its waits is over. p_waits: JSON array of {key, kind,
--   place, due (an interval from now), name (signal), child, tool (see tool_ask), approval {id, title,
--   action, digest, need, approvers, requester, notify [recipient]}}. The kind answer waits for what only
--   ends the run: tool_answer. A wait that was registered before keeps its due time.
-- A wait with "drop": true is one that the handler has given up: it goes, and its question is void.
-- One row each: parked; ready, with the content of its result, and then the run is not parked;
-- pending beside one that is ready; lost.
create or replace function semel.run_park(
    p_project text, p_worker text, p_run uuid, p_fence bigint, p_waits text, p_now timestamptz default null
) returns table (step_key text, outcome text, content text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now     timestamptz;
    v_waits   jsonb := p_waits::jsonb;
    v_wait    jsonb;
    v_run     semel.run;
    v_ready   text[] := '{}';
    v_content jsonb;
begin
    perform semel.project_require(p_project);
    select * into v_run from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for update;
    if not found then
        return query select w ->> 'key', 'lost', null::text from jsonb_array_elements(v_waits) as w;
        return;
    end if;
    v_now := coalesce(p_now, clock_timestamp());

    update semel.approval as a set state = 'VOID', decided_at = v_now
    where a.project_id = p_project and a.run_id = p_run and a.state = 'PENDING'
      and a.step_key in (select w ->> 'key' from jsonb_array_elements(v_waits) as w where (w ->> 'drop')::boolean);
    delete from semel.wait as w
    where w.project_id = p_project and w.run_id = p_run
      and w.step_key in (select g ->> 'key' from jsonb_array_elements(v_waits) as g where (g ->> 'drop')::boolean);
    v_waits := coalesce((select jsonb_agg(w order by n) from jsonb_array_elements(v_waits) with ordinality as e(w, n)
                         where (w ->> 'drop')::boolean is not true), '[]');
    if jsonb_array_length(v_waits) = 0 then
        raise exception using errcode = 'SMQ01', message = 'a run that is parked and waits for nothing',
            hint = 'Name at least one wait.';
    end if;
    perform semel.key_require(array(select w ->> 'key' from jsonb_array_elements(v_waits) as w));
    for v_wait in select w from jsonb_array_elements(v_waits) as w loop
        if exists (select from semel.step as s where s.project_id = p_project and s.run_id = p_run
                   and s.step_key = v_wait ->> 'key' and s.entry = 'result') then
            -- Answered while the run was away for another wait: there is nothing to ask any more.
            v_ready := v_ready || (v_wait ->> 'key');
            continue;
        end if;
        insert into semel.wait as w (project_id, run_id, step_key, kind, place, name, child_id, due_at, created_at)
        values (p_project, p_run, v_wait ->> 'key', v_wait ->> 'kind', (v_wait ->> 'place')::int, v_wait ->> 'name',
                (v_wait ->> 'child')::uuid, v_now + (v_wait ->> 'due')::interval, v_now)
        on conflict on constraint wait_pkey do nothing;
        if v_wait ->> 'kind' = 'approval' then
            perform semel.approval_ask(p_project, v_run, v_wait ->> 'key', v_wait -> 'approval',
                                       (v_wait ->> 'due')::interval, v_now);
        elsif v_wait ->> 'kind' = 'tool' then
            perform semel.tool_ask(p_project, v_run, v_wait ->> 'key', v_wait -> 'tool', v_now);
        end if;
        perform semel.wait_look(p_project, v_run, v_wait ->> 'key', v_now);
        if not exists (select from semel.wait as w where w.project_id = p_project and w.run_id = p_run
                       and w.step_key = v_wait ->> 'key') then
            v_ready := v_ready || (v_wait ->> 'key');
        end if;
    end loop;

    if v_ready = '{}' then
        perform semel.attempt_record(p_project, v_run, 'parked', null, null, v_now);
        update semel.run as r set
            status = case when exists (select from semel.wait as w where w.project_id = p_project
                                       and w.run_id = p_run and w.kind = 'approval')
                          then 'WAITING_APPROVAL' else 'WAITING_TOOL' end,
            fence = r.fence + 1, worker_id = null, lease_until = null, has_wait = true,
            due_at = (select min(w.due_at) from semel.wait as w where w.project_id = p_project and w.run_id = p_run)
        where r.project_id = p_project and r.run_id = p_run;
        if v_run.concurrency_key is not null then
            perform semel.key_freed(p_project, array[v_run.agent], array[v_run.concurrency_key], v_now);
        end if;
    elsif not v_run.has_wait then
        update semel.run as r set has_wait = true where r.project_id = p_project and r.run_id = p_run;
    end if;
    return query
        select w ->> 'key',
            case when v_ready = '{}' then 'parked' when w ->> 'key' = any (v_ready) then 'ready' else 'pending' end,
            (select s.content::text from semel.step as s where s.project_id = p_project and s.run_id = p_run
             and s.step_key = w ->> 'key' and s.entry = 'result' and w ->> 'key' = any (v_ready))
        from jsonb_array_elements(v_waits) with ordinality as e(w, n) order by n;
end
$$;

-- Look whether a wait is over; if so its answer goes into the journal and the wait away. A retry
-- leaves no answer: its step is to be tried again. Internal; the caller holds the run's lock.
create or replace function semel.wait_look(
    p_project text, p_run semel.run, p_key text, p_now timestamptz
) returns boolean
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_wait   semel.wait;
    v_answer jsonb;
    v_signal semel.signal;
begin
    select * into v_wait from semel.wait as w
    where w.project_id = p_project and w.run_id = p_run.run_id and w.step_key = p_key for update;
    if not found then
        return false;
    end if;
    if not exists (select from semel.step as s where s.project_id = p_project and s.run_id = p_run.run_id
                   and s.step_key = p_key and s.entry = 'result') then
        case v_wait.kind
            when 'signal' then
                select * into v_signal from semel.signal as s
                where s.project_id = p_project and s.run_id = p_run.run_id and s.name = v_wait.name and s.taken_by is null
                order by s.sent_at, s.signal_id limit 1 for update;
                if found then
                    update semel.signal as s set taken_by = p_key
                    where s.project_id = p_project and s.run_id = p_run.run_id and s.signal_id = v_signal.signal_id;
                    v_answer := jsonb_build_object('content', v_signal.content, 'sender', v_signal.sender, 'sent_at', v_signal.sent_at);
                end if;
            when 'child' then
                select jsonb_build_object('run_id', h.run_id, 'status', h.status, 'result', h.result,
                                          'code', h.failure_code, 'reason', h.failure_reason)
                into v_answer from semel.run_history as h
                where h.project_id = p_project and h.run_id = v_wait.child_id
                  and not exists (select from semel.run as r where r.project_id = p_project and r.run_id = h.run_id)
                order by h.finished_at desc limit 1;
                if v_answer is null and semel.run_status(p_project, v_wait.child_id) is null then
                    v_answer := jsonb_build_object('run_id', v_wait.child_id, 'status', 'GONE', 'code', 'E-RUN-001',
                                                   'reason', 'it ended so long ago that its history is no longer kept');
                end if;
            when 'tool' then
                v_answer := semel.tool_outcome(p_project, v_wait.run_id, p_key, v_wait.child_id, v_wait.due_at, p_now);
            else
                null;
        end case;
        if v_answer is null and v_wait.due_at <= p_now and v_wait.kind in ('signal', 'child') then
            v_answer := jsonb_build_object('timed_out', true);
        elsif v_answer is null and v_wait.due_at <= p_now and v_wait.kind = 'sleep' then
            v_answer := 'null';
        end if;
        if v_answer is not null then
            perform semel.step_put(p_project, p_run, p_key, 'result', v_wait.kind, v_wait.place, v_answer, p_now);
        elsif v_wait.kind <> 'retry' or v_wait.due_at > p_now then
            return false;
        end if;
    end if;
    delete from semel.wait as w
    where w.project_id = p_project and w.run_id = p_run.run_id and w.step_key = p_key;
    if v_answer ? 'timed_out' and v_wait.kind = 'tool' then
        -- Only now: its end would look at this very wait.
        perform semel.run_cancel(p_project, v_wait.child_id, 'its caller waited in vain', p_now => p_now);
    end if;
    return true;
end
$$;

-- Make a waiting run claimable, ahead of what never began. Internal; the caller holds its lock.
create or replace function semel.run_resume(p_project text, p_run uuid, p_now timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    update semel.run as r set status = 'RESUMED', lane = semel.run_lane('RESUMED', r.priority, false),
        fence = r.fence + 1, ready_at = p_now, due_at = null
    where r.project_id = p_project and r.run_id = p_run and r.status in ('WAITING_TOOL', 'WAITING_APPROVAL');
end
$$;

-- The handler returned while its run was being parked with p_fence: let the run go on, and complete.
-- outcome: won; lost (it goes on already, or has ended).
create or replace function semel.run_unpark(
    p_project text, p_run uuid, p_fence bigint, p_now timestamptz default null
) returns table (run_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    perform from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence + 1
      and r.status in ('WAITING_TOOL', 'WAITING_APPROVAL')
    for update;
    if not found then
        return query select p_run, 'lost';
        return;
    end if;
    perform semel.run_resume(p_project, p_run, v_now);
    return query select p_run, 'won';
end
$$;

-- A child has ended: its parent, where it waits for it, goes on. Internal; the parent is locked
-- with its child (run_lock).
create or replace function semel.child_ended(p_project text, p_parent uuid, p_child uuid, p_now timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_run semel.run;
    v_key text;
begin
    select * into v_run from semel.run as r where r.project_id = p_project and r.run_id = p_parent for update;
    if not found then
        return;
    end if;
    for v_key in
        select w.step_key from semel.wait as w
        where w.project_id = p_project and w.run_id = p_parent and w.child_id = p_child
        order by w.step_key
    loop
        if semel.wait_look(p_project, v_run, v_key, p_now) then
            perform semel.run_resume(p_project, p_parent, p_now);
        end if;
    end loop;
end
$$;

-- End the waits whose time has come: sleeps and retries go on, other waits are told, approvals fail
-- their runs. Answers how many runs it moved. Internal to run_due.
create or replace function semel.wait_due(p_project text, p_agent text, p_limit int, p_now timestamptz) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now      timestamptz;
    v_runs     uuid[];
    v_id       uuid;
    v_run      semel.run;
    v_key      text;
    v_over     boolean;
    v_approval semel.approval;
    v_count    int := 0;
begin
    v_runs := semel.run_due_find(p_project, p_agent, array['WAITING_TOOL', 'WAITING_APPROVAL'], p_limit,
                                 coalesce(p_now, clock_timestamp()));
    if v_runs = '{}' then
        return 0;
    end if;
    foreach v_id in array semel.run_lock(p_project, v_runs, false) loop
        -- As it is now: a child's end, further ahead in this very sweep, may have woken it.
        select * into v_run from semel.run as r
        where r.project_id = p_project and r.run_id = v_id and r.status in ('WAITING_TOOL', 'WAITING_APPROVAL');
        continue when not found;
        v_now := coalesce(p_now, clock_timestamp());
        select * into v_approval from semel.approval as a
        where a.project_id = p_project and a.run_id = v_run.run_id and a.state = 'PENDING' and a.expires_at <= v_now
        order by a.expires_at, a.approval_id limit 1 for update;
        if found then
            update semel.approval as a set state = 'EXPIRED', decided_at = v_now
            where a.project_id = p_project and a.approval_id = v_approval.approval_id;
            perform semel.run_end(p_project, null, array[v_run.run_id], array[v_run.fence], 'FAILED', 'E-APPROVAL-002',
                format('%L was not decided before %s', v_approval.title, v_approval.expires_at), null, v_now);
            v_count := v_count + 1;
            continue;
        end if;
        v_over := false;
        for v_key in
            select w.step_key from semel.wait as w
            where w.project_id = p_project and w.run_id = v_run.run_id and w.due_at <= v_now order by w.step_key
        loop
            v_over := semel.wait_look(p_project, v_run, v_key, v_now) or v_over;
        end loop;
        if v_over then
            perform semel.run_resume(p_project, v_run.run_id, v_now);
            v_count := v_count + 1;
        else
            update semel.run as r set due_at = (
                select min(w.due_at) from semel.wait as w where w.project_id = p_project and w.run_id = v_run.run_id)
            where r.project_id = p_project and r.run_id = v_run.run_id;
        end if;
    end loop;
    return v_count;
end
$$;
