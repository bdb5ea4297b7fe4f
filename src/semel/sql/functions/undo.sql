-- Undo: a saga that failed is compensated by a linked run, in reverse.
--
--   run FAILED or CANCELLED, with intents ──> undo run PENDING ──> each undo, newest first ──> COMPLETED
--        └── E-STEP-001: held ──compensate──────^                    └── one fails for good ──> FAILED
--                                                                 retry, or skip that one ──> PENDING
--
-- Its id is derived from the run's, so that a run has one at most. Its own journal says what is
--   undone: the key of the step, once.
-- Fence: it is leased and fenced like any run.
-- Locks: run (or its history), then the undo run, then step.
-- Clock: p_now, or the server's.

-- The id of the run that does p_what for p_run: beside it in the order of time, and never another.
create or replace function semel.run_beside(p_run uuid, p_what text) returns uuid
language sql immutable set search_path = pg_catalog as $$
    select encode(set_byte(set_byte(
        substring(uuid_send(p_run) for 6) || substring(d.digest for 10),
        6, 112 | get_byte(d.digest, 0) % 16),
        8, 128 | get_byte(d.digest, 2) % 64), 'hex')::uuid
    from (select sha256(convert_to(p_what, 'UTF8') || uuid_send(p_run)) as digest) as d
$$;

-- The id of the run that compensates p_run.
create or replace function semel.undo_of(p_run uuid) returns uuid
language sql immutable set search_path = pg_catalog as $$
    select semel.run_beside(p_run, 'undo')
$$;

-- Start the compensation of a run whose row the caller has just moved to history, ready at p_ready.
-- Internal.
create or replace function semel.undo_start(p_project text, p_run uuid, p_ready timestamptz, p_now timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    insert into semel.run (project_id, run_id, agent, kind, version, status, lane, priority, max_attempts,
        ready_at, due_at, input, source, event_id, parent_run_id, created_at)
    select p_project, semel.undo_of(p_run), h.agent, 'undo', h.version, 'PENDING',
        semel.run_lane('PENDING', 9, false), 9, 10,
        case when p_ready <= p_now then p_now end, case when p_ready > p_now then p_ready end,
        jsonb_build_object('run_id', p_run, 'status', h.status, 'code', h.failure_code), h.source, null, p_run, p_now
    from semel.run_history as h
    where h.project_id = p_project and h.run_id = p_run
    order by h.finished_at desc limit 1
    on conflict do nothing;
end
$$;

-- An operator lets a held compensation begin. outcome: won; already (it was started); refused (not
-- FAILED or CANCELLED, or nothing to undo); unknown.
create or replace function semel.run_compensate(p_project text, p_run uuid, p_now timestamptz default null)
returns table (run_id uuid, outcome text, status text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_row record;
    v_run semel.run;
    v_old semel.run_history;
begin
    perform semel.project_require(p_project);
    v_row := semel.run_hold(p_project, p_run);
    v_run := v_row.live;
    v_old := v_row.past;
    if v_run.run_id is not null then
        return query select p_run, 'refused', v_run.status;
    elsif v_old.run_id is null then
        return query select p_run, 'unknown', null::text;
    elsif v_old.undo = 'held' then
        update semel.run_history as h set undo = 'started'
        where h.project_id = p_project and h.run_id = p_run and h.finished_at = v_old.finished_at;
        perform semel.undo_start(p_project, p_run, v_now, v_now);
        return query select semel.undo_of(p_run), 'won', v_old.status;
    elsif v_old.undo = 'started' then
        return query select semel.undo_of(p_run), 'already', v_old.status;
    else
        return query select p_run, 'refused', v_old.status;
    end if;
end
$$;

-- What the undo run of p_parent has to do, in its order: each intent, newest first, with what its step
-- had answered (null: the step may have taken effect without saying so), and what became of it.
create or replace function semel.undo_plan(p_project text, p_parent uuid)
returns table (step_key text, undo text, arguments text, result text, finished boolean, undone text)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
begin
    perform semel.project_require(p_project);
    return query
        select i.step_key, i.content ->> 'undo', (i.content - 'undo')::text,
            (select s.content::text from semel.step as s where s.project_id = p_project and s.run_id = p_parent
             and s.step_key = i.step_key and s.entry = 'result'),
            exists (select from semel.step as s where s.project_id = p_project and s.run_id = p_parent
                    and s.step_key = i.step_key and s.entry = 'result'),
            (select s.content::text from semel.step as s where s.project_id = p_project and s.run_id = semel.undo_of(p_parent)
             and s.step_key = i.step_key and s.entry = 'result')
        from (select distinct on (s.step_key) s.step_key, s.position, s.content from semel.step as s
              where s.project_id = p_project and s.run_id = p_parent and s.entry = 'intent'
              order by s.step_key, s.position) as i
        order by i.position desc;
end
$$;

-- What is left to undo of p_parent, in a sentence. Internal to the end of a compensation whose
-- workers were lost, and which can say nothing itself.
create or replace function semel.undo_left(p_project text, p_parent uuid) returns text
language sql stable security definer set search_path = pg_catalog as $$
    select 'its workers were lost; not undone: ' || coalesce(string_agg(u.step_key, ', ' order by u.n), 'nothing')
    from semel.undo_plan(p_project, p_parent) with ordinality as u(step_key, undo, arguments, result, finished, undone, n)
    where u.undone is null
$$;

-- An operator declares a step undone by other means, or not to be undone: the compensation of p_run
-- passes it over. outcome: won; already (undone or skipped before); refused (no such intent);
-- unknown (the run has no compensation).
create or replace function semel.undo_skip(
    p_project text, p_run uuid, p_key text, p_reason text, p_who text, p_now timestamptz default null
) returns table (run_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_undo uuid := semel.undo_of(p_run);
    v_row  record;
    v_run  semel.run;
    v_old  semel.run_history;
begin
    perform semel.project_require(p_project);
    v_row := semel.run_hold(p_project, v_undo);
    v_run := v_row.live;
    v_old := v_row.past;
    if v_run.run_id is null and v_old.run_id is null then
        return query select p_run, 'unknown';
        return;
    elsif v_run.run_id is null then
        v_run.run_id := v_old.run_id;
        v_run.attempt_count := v_old.attempt_count;
        v_run.fence := v_old.fence;
    end if;
    if not exists (select from semel.step as s where s.project_id = p_project and s.run_id = p_run
                   and s.step_key = p_key and s.entry = 'intent') then
        return query select v_undo, 'refused';
        return;
    end if;
    return query select v_undo, case when semel.step_put(p_project, v_run, p_key, 'result', 'skip', null,
        jsonb_build_object('skipped', true, 'reason', p_reason, 'by', p_who), v_now) then 'won' else 'already' end;
end
$$;

-- The handlers of these runs of p_worker, which ended under them, have stopped: their compensations
-- need not wait longer. Answers which were made ready.
create or replace function semel.run_stopped(
    p_project text, p_worker text, p_runs uuid[], p_now timestamptz default null
) returns table (run_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    return query
        with due as materialized (
            select r.run_id from semel.run as r
            where r.project_id = p_project
              and r.run_id = any (array(select semel.undo_of(x.id) from unnest(p_runs) as x(id)))
              and r.kind = 'undo' and r.status = 'PENDING' and r.fence = 0 and r.due_at is not null
              and exists (select from semel.run_history as h where h.project_id = p_project
                          and h.run_id = r.parent_run_id and h.worker_id = p_worker)
            order by r.run_id
            for update of r skip locked
        )
        update semel.run as r set ready_at = v_now, due_at = null from due as d
        where r.project_id = p_project and r.run_id = d.run_id
        returning r.run_id;
end
$$;
