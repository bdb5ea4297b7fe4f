-- Inbox: an event is accepted once, in one transaction with its run.
--
--   offered ──insert dedupe──> new ──────────> run PENDING, delivery
--      │ the key is there
--      ├── past its memory ──> new (the row is taken over)
--      ├── other input ──────> conflict, delivery
--      └── else ─────────────> duplicate, delivery; last_seen_at moves
--   its content came before under another id (contents.sql) ──> redelivery: a duplicate of that id's event
--   new, and a live run holds its unique key ──> duplicate of that run; of its id nothing is kept
--   new, its agent joins, and a live run holds its correlation key ──> new: a signal to that run
--
-- Fence: the unique key of dedupe. A second arrival waits for the first one's fate.
-- Locks: content by key, then dedupe by key, then unique keys, then the runs that are told, by run_id. Keys are inserted and
--   locked in key order, and so are unique keys.
-- Clock: sightings use p_now or the server's; a run's times are always the server's.

-- Accept p_events of one project; answer one row each, in their order.
-- p_events: JSON array of {source, channel, id, agent, input, priority, max_attempts, delay,
--   deadline, unique, correlation, compare, content, window, body, headers, verdict, reason}. id null: no identity, always new.
--   agent null: no run. delay, deadline: intervals from now. unique: one live run of the agent for
--   it. correlation: where the agent joins, a live run that holds it is told, instead of another's
--   being made; unless unique is there. compare: the same id with other (agent, input) is a conflict, unless what was first seen of
--   it is not known (an import); nothing else is compared, another priority is a duplicate. content:
--   what was said, for an id that is not signed: the same within its window (an interval; p_memory at
--   most, and if it is absent) is the same event, and the id with another content is a conflict. body:
--   index into p_bodies, from 0. verdict: already judged (ignored, quarantined): only a delivery is
--   kept.
-- At most 256 events; p_memory counts from the last sighting.
create or replace function semel.event_accept(
    p_project text,
    p_events  text,
    p_bodies  bytea[] default '{}',
    p_memory  interval default '7 days',
    p_now     timestamptz default null
) returns table (ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_real    timestamptz := clock_timestamp();
    v_now     timestamptz := coalesce(p_now, v_real);
    v_events  jsonb := p_events::jsonb;
    v_count   int := jsonb_array_length(v_events);
    v_told    text[];   -- the id that a known content came with; null: none has a content
    v_offer   semel.offer[];
    v_verdict text[];
    v_reason  text[];
    v_event   uuid[];
    v_run     uuid[];
    v_new     uuid[];
    v_due     timestamptz[];
    v_until   timestamptz[];
    v_unique  text[];
    v_joins   text[];
    v_ord     int[];
    v_at      uuid[];
    v_keyed   int;      -- events that are remembered by a key
    v_timed   boolean;  -- some are due later, or have a deadline
    v_judged  int;      -- of them: inserted, or met
    v_pass    boolean;
    v_old     record;
begin
    perform semel.project_require(p_project);
    if v_count > 256 then
        raise exception using errcode = 'SMQ01',
            message = format('%s events in one call', v_count), hint = 'Send at most 256.';
    end if;

    if jsonb_path_exists(v_events, '$[*].content') then
        v_events := semel.content_resolve(p_project, v_events, p_memory, v_now);
        select array_agg(e.v ->> 'told' order by e.n) into v_told from jsonb_array_elements(v_events) with ordinality as e(v, n);
    end if;

    -- Ids are made here, by the database's clock. An event that brings none is named by its own.
    select array_agg(row(
            e.n, e.v ->> 'source', e.v ->> 'channel', i.id,
            e.v ->> 'agent', coalesce(e.v -> 'input', 'null'), coalesce((e.v ->> 'priority')::int, 5),
            (e.v ->> 'max_attempts')::int,
            case when (e.v ->> 'compare')::boolean then semel.input_digest(e.v ->> 'agent', e.v -> 'input')
                 when e.v ->> 'content' is not null then semel.event_key(e.v ->> 'source', e.v ->> 'content') end,
            case when i.event_id is not null then semel.event_key(e.v ->> 'source', i.id) end,
            (e.v ->> 'body')::int, coalesce(e.v -> 'headers', '{}'), i.event_id, i.run_id
        )::semel.offer order by e.n),
        array_agg(i.event_id order by e.n), array_agg(i.run_id order by e.n), count(i.event_id),
        array_agg(coalesce(e.v ->> 'verdict', 'new') order by e.n),
        array_agg(coalesce(e.v ->> 'reason', case when e.v ->> 'id' is null then 'no identity was given'
                                                  else 'first sighting of this id' end) order by e.n),
        array_agg(v_real + (e.v ->> 'delay')::interval order by e.n),
        array_agg(v_real + (e.v ->> 'deadline')::interval order by e.n),
        array_agg(e.v ->> 'unique' order by e.n),
        array_agg(case when coalesce(e.v ->> 'correlation', '') <> '' and e.v ->> 'unique' is null
                            and semel.agent_joins(p_project, e.v ->> 'agent')
                       then semel.correlation_key(e.v ->> 'source', e.v ->> 'correlation') end order by e.n)
    into v_offer, v_event, v_run, v_keyed, v_verdict, v_reason, v_due, v_until, v_unique, v_joins
    from jsonb_array_elements(v_events) with ordinality as e(v, n)
    cross join lateral (select u.event_id, u.run_id, coalesce(e.v ->> 'id', 'semel:' || u.event_id) as id
                        from (select case when e.v ->> 'verdict' is null then semel.uuid_at(v_now) end as event_id,
                                     case when e.v ->> 'verdict' is null and e.v ->> 'agent' is not null
                                          then semel.uuid_at(v_real) end as run_id) as u offset 0) as i;
    v_timed := array_remove(v_due, null) <> '{}' or array_remove(v_until, null) <> '{}';
    if array_remove(v_unique, null) = '{}' then
        v_unique := null;
    end if;
    if array_remove(v_joins, null) = '{}' then
        v_joins := null;
    end if;

    with first as (
        select distinct on (o.dedupe_key) o.*
        from unnest(v_offer) as o where o.dedupe_key is not null
        order by o.dedupe_key, o.ord
    ), fresh as (
        insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id,
            event_id, run_id, input_digest, first_seen_at, last_seen_at)
        select p_project, f.dedupe_key, f.source, f.channel_type, f.provider_event_id,
            f.event_id, f.run_id, f.input_digest, v_now, v_now
        from first as f order by f.dedupe_key
        on conflict on constraint dedupe_pkey do nothing
        returning dedupe.event_id
    )
    select coalesce(array_agg(fresh.event_id), '{}') into v_new from fresh;

    -- Whoever did not insert meets a committed row (or one of its own batch): lock, then judge.
    -- First arrivals of each key go before the others, which see what those left.
    v_judged := cardinality(v_new);
    if v_judged < v_keyed then
        foreach v_pass in array array[true, false] loop
            for v_old in
                select o.ord, o.dedupe_key, o.event_id as new_event, o.run_id as new_run, o.input_digest as new_digest,
                       d.event_id, d.run_id, d.input_digest, d.last_seen_at
                from (select u.*, u.ord = min(u.ord) over (partition by u.dedupe_key) as is_first
                      from unnest(v_offer) as u) as o
                join semel.dedupe as d on d.project_id = p_project and d.dedupe_key = o.dedupe_key
                where o.event_id <> all (v_new) and o.is_first = v_pass
                order by o.dedupe_key, o.ord
                for update of d
            loop
                v_judged := v_judged + 1;
                if v_old.last_seen_at + p_memory <= v_now then
                    update semel.dedupe as d set
                        event_id = v_old.new_event, run_id = v_old.new_run, input_digest = v_old.new_digest,
                        first_seen_at = v_now, last_seen_at = v_now, hits = 1
                    where d.project_id = p_project and d.dedupe_key = v_old.dedupe_key;
                    v_new := v_new || v_old.new_event;
                    v_reason[v_old.ord] := format('last seen at %s, past its memory of %s', v_old.last_seen_at, p_memory);
                    continue;
                end if;
                v_event[v_old.ord] := v_old.event_id;
                v_run[v_old.ord] := v_old.run_id;
                if v_old.input_digest is not null and v_old.new_digest is distinct from v_old.input_digest then
                    v_verdict[v_old.ord] := 'conflict';
                    v_reason[v_old.ord] := case when v_events -> (v_old.ord - 1) ? 'content' then 'this id was seen with another content'
                                                else 'this id was seen with another agent or input' end;
                else
                    v_verdict[v_old.ord] := 'duplicate';
                    v_reason[v_old.ord] := format('this id was first seen in event %s', v_old.event_id);
                    update semel.dedupe as d set last_seen_at = greatest(d.last_seen_at, v_now), hits = d.hits + 1
                    where d.project_id = p_project and d.dedupe_key = v_old.dedupe_key;
                end if;
            end loop;
            exit when v_judged = v_keyed;
        end loop;
        -- A key that is neither ours nor there was purged in between: only a new snapshot can tell.
        if exists (select from unnest(v_offer) as o
                   where o.dedupe_key is not null and v_verdict[o.ord] = 'new' and o.event_id <> all (v_new)) then
            raise exception using errcode = '40001',
                message = 'a dedupe row was purged while its event arrived again';
        end if;
    end if;

    if v_told is not null then
        for v_twin in 1 .. v_count loop
            if v_verdict[v_twin] = 'duplicate' and v_told[v_twin] is not null then
                v_verdict[v_twin] := 'redelivery';
                v_reason[v_twin] := format('its content came first as %s, in event %s', v_offer[v_twin].provider_event_id, v_event[v_twin]);
            end if;
        end loop;
        perform semel.content_forget(p_project, array_agg(o.input_digest), array_agg(o.provider_event_id))
        from unnest(v_offer) as o where v_verdict[o.ord] = 'conflict' and v_told[o.ord] is null
        having count(*) > 0;
    end if;

    perform semel.run_create(p_project, array_agg(o.run_id), array_agg(o.agent), array_agg(o.input),
        array_agg(o.priority), array_agg(o.max_attempts), array_agg(o.source), array_agg(o.event_id))
    from unnest(v_offer) as o
    where v_verdict[o.ord] = 'new' and o.run_id is not null and v_due[o.ord] is null and v_until[o.ord] is null
      and v_unique[o.ord] is null and v_joins[o.ord] is null
    having count(*) > 0;
    if v_timed then
        perform semel.run_create(p_project, array[o.run_id], array[o.agent], array[o.input], array[o.priority],
            array[o.max_attempts], array[o.source], array[o.event_id], v_due[o.ord], v_until[o.ord])
        from unnest(v_offer) as o
        where v_verdict[o.ord] = 'new' and o.run_id is not null
          and (v_due[o.ord] is not null or v_until[o.ord] is not null) and v_unique[o.ord] is null
          and v_joins[o.ord] is null;
    end if;
    if strpos(p_events, '"concurrency_key"') > 0 then
        update semel.run as r set concurrency_key = e.v ->> 'concurrency_key'
        from unnest(v_offer) as o, jsonb_array_elements(v_events) with ordinality as e(v, n)
        where r.project_id = p_project and r.run_id = o.run_id and e.n = o.ord and e.v ? 'concurrency_key'
          and v_verdict[o.ord] = 'new';
    end if;
    if v_unique is not null then
        -- One after the other: whether a key is free shows only when its run is inserted.
        for v_old in
            select o.*, j.run_id as live_run, j.event_id as live_event
            from (select * from unnest(v_offer) as u
                  where v_verdict[u.ord] = 'new' and u.run_id is not null and v_unique[u.ord] is not null
                  order by u.agent, v_unique[u.ord], u.ord) as o
            cross join lateral semel.run_join(p_project, o.run_id, o.agent, o.input, o.priority, o.max_attempts,
                o.source, o.event_id, v_due[o.ord], v_until[o.ord], v_unique[o.ord]) as j
        loop
            continue when v_old.live_run = v_old.run_id;
            delete from semel.dedupe as d
            where d.project_id = p_project and d.dedupe_key = v_old.dedupe_key and d.event_id = v_old.event_id;
            for v_twin in array_lower(v_event, 1) .. array_upper(v_event, 1) loop  -- itself, and its duplicates
                continue when v_event[v_twin] is distinct from v_old.event_id;
                v_event[v_twin] := v_old.live_event;
                v_run[v_twin] := v_old.live_run;
                v_verdict[v_twin] := 'duplicate';
                v_reason[v_twin] := format('a live run of agent %s holds the unique key', v_old.agent);
            end loop;
        end loop;
    end if;

    if v_joins is not null then
        select array_agg(o.ord order by o.ord) into v_ord from unnest(v_offer) as o
        where v_verdict[o.ord] = 'new' and o.run_id is not null and v_joins[o.ord] is not null;
    end if;
    if v_ord is not null then
        select semel.event_join(p_project, array_agg(o.run_id order by o.ord), array_agg(o.agent order by o.ord),
            array_agg(o.input order by o.ord), array_agg(o.priority order by o.ord),
            array_agg(o.max_attempts order by o.ord), array_agg(o.source order by o.ord),
            array_agg(o.event_id order by o.ord), array_agg(v_joins[o.ord] order by o.ord),
            array_agg(v_due[o.ord] order by o.ord), array_agg(v_until[o.ord] order by o.ord))
        into v_at from unnest(v_offer) as o where o.ord = any (v_ord);
        for v_old in
            select x.ord, x.at, v_event[x.ord] as event_id from unnest(v_ord, v_at) as x(ord, at) where x.at <> v_run[x.ord]
        loop
            v_reason[v_old.ord] := v_reason[v_old.ord] || '; it joins the live run of its correlation key';
            for v_twin in array_lower(v_event, 1) .. array_upper(v_event, 1) loop  -- itself, and its duplicates
                continue when v_event[v_twin] is distinct from v_old.event_id;
                v_run[v_twin] := v_old.at;
            end loop;
        end loop;
    end if;

    perform semel.body_keep(p_project, p_bodies, v_now);
    insert into semel.delivery (project_id, delivery_id, received_at, source, channel_type, verdict, reason,
        provider_event_id, event_id, run_id, body_digest, body, headers)
    select p_project, semel.uuid_at(v_real), v_now, o.source, o.channel_type, v_verdict[o.ord], v_reason[o.ord],
        coalesce(v_told[o.ord], o.provider_event_id), v_event[o.ord], v_run[o.ord],
        case when not semel.body_is_small(b.content) then sha256(b.content) end,
        case when semel.body_is_small(b.content) then b.content end, o.headers
    from unnest(v_offer) as o cross join lateral (select p_bodies[o.body + 1] as content) as b;

    return query
        select x.n::int, x.verdict, x.event, x.run, x.reason
        from unnest(v_verdict, v_event, v_run, v_reason) with ordinality as x(verdict, event, run, reason, n);
end
$$;

-- event_accept for a batch of strangers' events: no lock is waited for longer than half a second,
-- so that one slow twin does not hold up the others. On any error nothing is kept, and the caller
-- sends them one by one.
create or replace function semel.event_gather(
    p_project text, p_events text, p_bodies bytea[] default '{}', p_memory interval default '7 days',
    p_now timestamptz default null
) returns table (ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '500ms' as $$
begin
    perform semel.project_require(p_project);
    return query select * from semel.event_accept(p_project, p_events, p_bodies, p_memory, p_now);
end
$$;

-- What an id stands for when its input counts: agent and input, members in jsonb's own order, and
-- numbers as they are written: 1 and 1.0 are two inputs.
create or replace function semel.input_digest(p_agent text, p_input jsonb) returns bytea
language sql immutable set search_path = pg_catalog as $$
    select sha256(convert_to(jsonb_build_array(p_agent, p_input)::text, 'UTF8'))
$$;

-- Whether a delivery holds its body itself, however often it comes.
create or replace function semel.body_is_small(p_content bytea) returns boolean
language sql immutable parallel safe as $$
    select pg_catalog.octet_length(p_content) <= 1024
$$;

-- Keep the raw bodies that are not small, once for each content. seen_at moves at most daily.
create or replace function semel.body_keep(p_project text, p_bodies bytea[], p_now timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    if exists (select from unnest(p_bodies) as offered(content) where not semel.body_is_small(content)) then
        insert into semel.body as b (project_id, body_digest, content, seen_at)
        select distinct on (sha256(content)) p_project, sha256(content), content, p_now
        from unnest(p_bodies) as offered(content)
        where not semel.body_is_small(content)
        order by sha256(content)
        on conflict on constraint body_pkey do update set seen_at = excluded.seen_at
        where b.seen_at < excluded.seen_at - interval '1 day';
    end if;
end
$$;

-- Announce the sources an ingress serves, for the view and for operators.
create or replace function semel.source_register(
    p_project text, p_sources text[], p_channels text[], p_agents text[], p_now timestamptz default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    insert into semel.source as s (project_id, source, channel_type, agent, seen_at)
    select p_project, named.source, named.channel, named.agent, v_now
    from unnest(p_sources, p_channels, p_agents) as named(source, channel, agent)
    order by named.source
    on conflict on constraint source_pkey do update set
        channel_type = excluded.channel_type, agent = excluded.agent, seen_at = excluded.seen_at;
end
$$;
