-- Signals: what somebody says to a live run.
--
--   sent ──the run waits for the name──> its result, and the run goes on
--     └────it does not (yet)──────────> kept, in order, until a step asks for it
--
-- Fence: none; the run's lock orders a signal and the wait for it.
-- Locks: run, then signal, wait, step.
-- Clock: p_now, or the server's, read after the run's lock.

-- Send p_content (JSON) to a run under p_name. With p_key the same signal again is a duplicate.
-- outcome: won, duplicate, refused (the run has ended) or unknown. Each step that waits for the
-- name takes one, the oldest first.
create or replace function semel.signal_send(
    p_project text, p_run uuid, p_name text, p_content text default 'null', p_key text default null,
    p_sender text default '', p_event uuid default null, p_now timestamptz default null
) returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz;
    v_sent timestamptz;
    v_run  semel.run;
    v_ends text;
    v_key  text;
begin
    perform semel.project_require(p_project);
    if p_name is null or octet_length(p_name) not between 1 and 255 then
        raise exception using errcode = 'SMQ01', message = 'a signal without a name, or with one above 255 bytes',
            hint = 'Name it as the handler does in run.signal(name).';
    end if;
    for v_round in 1 .. 3 loop
        select * into v_run from semel.run as r where r.project_id = p_project and r.run_id = p_run for update;
        exit when found;
        v_ends := semel.run_status(p_project, p_run);
        if v_ends is null or v_ends in ('COMPLETED', 'FAILED', 'CANCELLED') then
            return query select p_run, case when v_ends is null then 'unknown' else 'refused' end, v_ends;
            return;
        end if;
    end loop;
    if v_run.run_id is null then
        raise exception using errcode = '40001', message = 'a run kept moving between life and history';
    end if;
    v_now := coalesce(p_now, clock_timestamp());
    -- Behind those of its name that nobody has taken, whatever the clock does.
    v_sent := greatest(v_now, (
        select s.sent_at + interval '1 microsecond' from semel.signal as s
        where s.project_id = p_project and s.run_id = p_run and s.name = p_name and s.taken_by is null
        order by s.sent_at desc limit 1));
    insert into semel.signal (project_id, run_id, signal_id, name, content, sender, event_id, sent_at)
    values (p_project, p_run,
            case when p_key is null then semel.uuid_at(v_now)
                 else encode(substring(semel.parts_digest(p_name, p_key) for 16), 'hex')::uuid end,
            p_name, coalesce(p_content::jsonb, 'null'), p_sender, p_event, v_sent)
    on conflict on constraint signal_pkey do nothing;
    if not found then
        return query select p_run, 'duplicate', v_run.status;
        return;
    end if;
    if v_run.status in ('WAITING_TOOL', 'WAITING_APPROVAL') then
        select w.step_key into v_key from semel.wait as w
        where w.project_id = p_project and w.run_id = p_run and w.kind = 'signal' and w.name = p_name
        order by w.created_at, w.step_key limit 1;
        if found and semel.wait_look(p_project, v_run, v_key, v_now) then
            perform semel.run_resume(p_project, p_run, v_now);
        end if;
    end if;
    return query select p_run, 'won', v_run.status;
end
$$;
