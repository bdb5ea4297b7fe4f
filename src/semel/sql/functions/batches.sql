-- Batches: runs that are started together, and whose end is told once.
--
--   open ──add, page by page──> close ──its last run ends──> complete ──> one run of on_complete
--                                 ^                              │
--                                 └──one of its runs is retried──┘  (nobody is told a second time)
--
-- No run's end touches the batch: upkeep looks whether one of its runs lives still, by one probe of
--   an index, and whoever finds none under the batch's lock completes it.
-- Fence: the batch's row; completing is a compare-and-set on completed_at, telling on callback_id.
-- Locks: batch, then dedupe by key, then new runs. The sweep skips what another holds.
-- Clock: p_now, or the server's.

-- Begin a batch; p_on_complete: the agent that gets one run when the last of the batch has ended.
-- outcome: new; open (it is there, and more may come); exists, with what its inputs were.
create or replace function semel.batch_open(
    p_project text, p_batch text, p_agent text, p_on_complete text default null, p_now timestamptz default null
) returns table (outcome text, agent text, on_complete text, digest bytea, total int, duplicates int)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_batch semel.batch;
begin
    perform semel.project_require(p_project);
    perform semel.agent_require(p_agent);
    if p_on_complete is not null then
        perform semel.agent_require(p_on_complete);
    end if;
    if starts_with(p_agent, 'semel.') or starts_with(p_on_complete, 'semel.') then
        raise exception using errcode = 'SMQ01', message = 'an agent whose name begins with semel.',
            hint = 'Those are Semel''s own, and started by it alone.';
    end if;
    if p_batch is null or octet_length(p_batch) not between 1 and 255 then
        raise exception using errcode = 'SMQ01', message = 'a batch without a name, or with one above 255 bytes',
            hint = 'Name it in 1 to 255 bytes.';
    end if;
    insert into semel.batch (project_id, batch, agent, on_complete, created_at)
    values (p_project, p_batch, p_agent, p_on_complete, v_now)
    on conflict on constraint batch_pkey do nothing;
    if found then
        return query select 'new', p_agent, p_on_complete, null::bytea, 0, 0;
        return;
    end if;
    select * into v_batch from semel.batch as b where b.project_id = p_project and b.batch = p_batch;
    if not found then
        raise exception using errcode = '40001', message = 'a batch was purged while it was looked at';
    end if;
    return query select case when v_batch.digest is null then 'open' else 'exists' end,
        v_batch.agent, v_batch.on_complete, v_batch.digest, v_batch.total, v_batch.duplicates;
end
$$;

-- Start a run of an open batch for each element of p_inputs, a JSON array; they are ready in its
-- order. p_keys: for each, null or what at most one run is started for, as run_start's p_key.
-- p_deadline counts from now. outcome: won, with how many runs are new and how many keys had one;
-- conflict, with the place (from 0) of an input whose key has another agent or input: then roll back;
-- refused: there is no such batch, or it is closed.
create or replace function semel.batch_add(
    p_project text, p_batch text, p_inputs text, p_keys text[] default null, p_source text default 'api',
    p_priority int default 5, p_max_attempts int default null, p_delay interval default null,
    p_deadline interval default null, p_memory interval default '7 days', p_now timestamptz default null
) returns table (outcome text, started int, duplicates int, place int)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_real   timestamptz := clock_timestamp();
    v_batch  semel.batch;
    v_inputs jsonb := p_inputs::jsonb;
    v_begun  int;
    v_lane   smallint := semel.run_lane('PENDING', p_priority, false);
    v_ids    uuid[];
    v_events uuid[];
    v_fresh  uuid[];
    v_lone   record;
    v_run    record;
    v_old    int := 0;
begin
    perform semel.project_require(p_project);
    if p_priority not between 0 and 9 or p_max_attempts < 1 then
        raise exception using errcode = 'SMQ01',
            message = 'a priority or max_attempts that is none',
            hint = 'A priority is 0 (last) to 9 (first); max_attempts is at least 1.';
    end if;
    if cardinality(p_keys) <> jsonb_array_length(v_inputs) then
        raise exception using errcode = 'SMQ01', message = 'another number of keys than of inputs',
            hint = 'Give a key, or null, for each input.';
    end if;
    select * into v_batch from semel.batch as b
    where b.project_id = p_project and b.batch = p_batch and b.digest is null
    for update;
    if not found then
        return query select 'refused', 0, 0, null::int;
        return;
    end if;
    if p_keys is not null then
        v_events := array(select case when u.key is not null then semel.uuid_at(v_real) end
                          from unnest(p_keys) with ordinality as u(key, n) order by u.n);
    end if;
    -- In the order of the inputs, and so that indexes grow at their end.
    v_ids := array(select semel.uuid_at(v_real) from generate_series(1, jsonb_array_length(v_inputs)) order by 1);
    if p_keys is not null then
        with remembered as (
            insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id,
                event_id, run_id, input_digest, first_seen_at, last_seen_at)
            select p_project, semel.event_key(p_source, x.key), p_source, 'api', x.key, x.event_id, v_ids[x.n],
                semel.input_digest(v_batch.agent, x.input), coalesce(p_now, v_real), coalesce(p_now, v_real)
            from rows from (jsonb_array_elements(v_inputs), unnest(p_keys), unnest(v_events))
                with ordinality as x(input, key, event_id, n)
            where x.key is not null
            order by semel.event_key(p_source, x.key), x.n
            on conflict on constraint dedupe_pkey do nothing
            returning event_id
        )
        select coalesce(array_agg(r.event_id), '{}') into v_fresh from remembered as r;
    end if;
    insert into semel.run (project_id, run_id, agent, status, lane, priority, max_attempts,
        ready_at, due_at, deadline_at, input, source, event_id, created_at, batch)
    select p_project, v_ids[x.n], v_batch.agent, 'PENDING', v_lane, p_priority, p_max_attempts,
        case when p_delay is null then v_real end, v_real + p_delay,
        v_real + p_deadline, case when not semel.input_is_large(x.input) then x.input end,
        case when x.key is not null then p_source end, x.event_id, v_real, p_batch
    from rows from (jsonb_array_elements(v_inputs), unnest(p_keys), unnest(v_events))
        with ordinality as x(input, key, event_id, n)
    where x.key is null or x.event_id = any (v_fresh);
    v_begun := jsonb_array_length(v_inputs) - (select count(u.key) from unnest(p_keys) as u(key)) + coalesce(cardinality(v_fresh), 0);
    insert into semel.run_input (project_id, run_id, input)
    select p_project, v_ids[x.n], x.input
    from rows from (jsonb_array_elements(v_inputs), unnest(p_keys), unnest(v_events))
        with ordinality as x(input, key, event_id, n)
    where semel.input_is_large(x.input) and (x.key is null or x.event_id = any (v_fresh));
    -- The others' keys were seen before: in this page, by another program, or too long ago to count.
    if p_keys is not null and v_begun < jsonb_array_length(v_inputs) then
        for v_lone in
            select u.key, u.n from unnest(p_keys, v_events) with ordinality as u(key, event_id, n)
            where u.key is not null and u.event_id <> all (v_fresh)
            order by semel.event_key(p_source, u.key), u.n
        loop
            select * into v_run from semel.run_start(
                p_project, v_batch.agent, (v_inputs -> (v_lone.n - 1)::int)::text, v_lone.key, p_source, p_priority,
                p_max_attempts, p_delay, p_deadline, null, p_memory, p_now);
            if v_run.outcome = 'conflict' then
                return query select 'conflict', 0, 0, (v_lone.n - 1)::int;
                return;
            elsif v_run.outcome = 'new' then
                update semel.run as r set batch = p_batch where r.project_id = p_project and r.run_id = v_run.run_id;
                v_begun := v_begun + 1;
            else
                v_old := v_old + 1;
            end if;
        end loop;
    end if;
    update semel.batch as b set total = b.total + v_begun, duplicates = b.duplicates + v_old
    where b.project_id = p_project and b.batch = p_batch;
    return query select 'won', v_begun, v_old, null::int;
end
$$;

-- Nothing more comes; p_digest says what its inputs were. outcome: won, already or unknown.
create or replace function semel.batch_close(p_project text, p_batch text, p_digest bytea)
returns table (outcome text, total int, duplicates int)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_batch semel.batch;
begin
    perform semel.project_require(p_project);
    if p_digest is null then
        raise exception using errcode = 'SMQ01', message = 'a batch that is closed without a digest',
            hint = 'Give the SHA-256 of its inputs.';
    end if;
    select * into v_batch from semel.batch as b
    where b.project_id = p_project and b.batch = p_batch
    for update;
    if not found then
        return query select 'unknown', null::int, null::int;
        return;
    end if;
    update semel.batch as b set digest = p_digest
    where b.project_id = p_project and b.batch = p_batch and b.digest is null;
    return query select case when found then 'won' else 'already' end, v_batch.total, v_batch.duplicates;
end
$$;

-- Complete the batches of which no run lives: write down how they ended, and start the run of
-- on_complete, once. Answers those completed, and the run that each is told by, if it is new.
create or replace function semel.batch_settle(
    p_project text, p_limit int default 100, p_now timestamptz default null
) returns table (batch text, done int, failed int, cancelled int, on_complete text, callback_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_batch semel.batch;
    v_ended record;
    v_id    uuid;
begin
    perform semel.project_require(p_project);
    for v_batch in
        select b.* from semel.batch as b
        where b.project_id = p_project and b.completed_at is null and b.digest is not null
          and not semel.batch_lives(p_project, b.batch)
        order by b.batch limit p_limit
        for update skip locked
    loop
        -- Under its lock, by a look of its own: one of its runs may have been retried meanwhile.
        continue when semel.batch_lives(p_project, v_batch.batch);
        select count(*) filter (where h.status = 'COMPLETED')::int as done,
            count(*) filter (where h.status = 'FAILED')::int as failed,
            count(*) filter (where h.status = 'CANCELLED')::int as cancelled
        into v_ended from semel.run_history as h
        where h.project_id = p_project and h.batch = v_batch.batch;
        v_id := null;
        if v_batch.on_complete is not null and v_batch.callback_id is null then
            v_id := semel.uuid_at(v_now);
            perform semel.run_spawn(p_project, v_id, v_batch.on_complete, jsonb_build_object(
                'batch', v_batch.batch, 'agent', v_batch.agent, 'total', v_batch.total, 'duplicates', v_batch.duplicates,
                'done', v_ended.done, 'failed', v_ended.failed, 'cancelled', v_ended.cancelled,
                'created_at', v_batch.created_at, 'completed_at', v_now), null, 'work', 5, v_now);
        end if;
        update semel.batch as b set completed_at = v_now, done = v_ended.done, failed = v_ended.failed,
            cancelled = v_ended.cancelled, callback_id = coalesce(b.callback_id, v_id)
        where b.project_id = p_project and b.batch = v_batch.batch;
        return query select v_batch.batch, v_ended.done, v_ended.failed, v_ended.cancelled, v_batch.on_complete, v_id;
    end loop;
end
$$;

-- Whether a run of a batch lives. From the end of the index: what was started last ends last, so that
-- the entries of those that ended are walked only when little is left. Internal; a snapshot of its own.
create or replace function semel.batch_lives(p_project text, p_batch text) returns boolean
language plpgsql security definer set search_path = pg_catalog as $$
begin
    return (select r.run_id from semel.run as r
            where r.project_id = p_project and r.batch = p_batch
            order by r.run_id desc limit 1) is not null;
end
$$;

-- One of its runs lives again: it is complete no longer. Internal; after the run's own move, since
-- who completes it looks for the run under this lock.
create or replace function semel.batch_reopen(p_project text, p_batch text) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform from semel.batch as b where b.project_id = p_project and b.batch = p_batch for update;
    update semel.batch as b set completed_at = null, done = null, failed = null, cancelled = null
    where b.project_id = p_project and b.batch = p_batch and b.completed_at is not null;
end
$$;

-- Forget batches that completed p_keep ago, as their runs are forgotten; p_limit at most. A name is
-- free again then.
create or replace function semel.batch_expire(
    p_project text, p_keep interval, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with gone as (
        delete from semel.batch as b where b.project_id = p_project and b.batch = any (array(
            select o.batch from semel.batch as o
            where o.project_id = p_project and o.created_at <= v_now - p_keep and o.completed_at <= v_now - p_keep
            order by o.created_at limit p_limit
            for update skip locked))
        returning 1
    )
    select count(*) into v_count from gone;
    return v_count;
end
$$;
