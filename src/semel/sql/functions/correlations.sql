-- Correlations: events of one key (an alert group, a chat) that are told to the run that is at it,
-- where their agent joins.
--
--   event ──no live run holds its key──> a run of its own, which holds the key while it lives
--     └─────a live run holds it───────> signal `event` to that run, link `joined`
--   resolution of an alert ───────────> signal `resolved` to the run of its episode, while it lives
--
-- Fence: a run's unique key says who holds it, the run's lock whether it still lives. A signal is
--   named by its event, so that one event is told once.
-- Locks: unique keys in their order, while no run is held; then every run that is told, by run_id; then
--   signal, wait, step. Where a holder ends in between, and something is held, all is sent again.
-- Clock: the server's.

-- The unique key of a run that the events of one correlation key join. Of one source: what two
-- senders call by one name are two things. Long ones (an Alertmanager's have no bound) are hashed.
create or replace function semel.correlation_key(p_source text, p_key text) returns text
language sql immutable set search_path = pg_catalog as $$
    select format('correlation:%s:%s', p_source, case when octet_length(p_key) <= 200 then p_key
                  else 'sha256:' || encode(sha256(convert_to(p_key, 'UTF8')), 'hex') end)
$$;

-- Whether the events of an agent join its live run; what its workers announced last.
create or replace function semel.agent_joins(p_project text, p_agent text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    return exists (select from semel.agent as a where a.project_id = p_project and a.agent = p_agent and a.joins);
end
$$;

-- Let new events, whose dedupe rows are the caller's, each make its run, or join the live run that holds
-- its key (correlation_key); answers for each the run that it is in now. p_due, p_until: of a run
-- that is made. And tell the runs of p_ended that alerts of theirs are resolved: p_said of p_by,
-- from p_from; a run that has ended is told nothing. Internal.
create or replace function semel.event_join(
    p_project text, p_runs uuid[], p_agents text[], p_inputs jsonb[], p_priorities int[], p_max_attempts int[],
    p_sources text[], p_events uuid[], p_keys text[], p_due timestamptz[], p_until timestamptz[],
    p_ended uuid[] default '{}', p_said jsonb[] default '{}', p_by uuid[] default '{}', p_from text[] default '{}'
) returns uuid[]
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_at   uuid[] := p_runs;
    v_left int[] := array(select n from generate_subscripts(p_runs, 1) as n);
    v_live uuid[];
    v_n    int;
    v_told record;
begin
    -- A holder may end between the look at its key and its lock: then the key is free again.
    for v_round in 1 .. 3 loop
        for v_n in
            select x.n from unnest(p_agents, p_keys) with ordinality as x(agent, key, n)
            where x.n = any (v_left) order by x.agent, x.key, x.n
        loop
            v_at[v_n] := (select j.run_id from semel.run_join(p_project, p_runs[v_n], p_agents[v_n], p_inputs[v_n],
                p_priorities[v_n], p_max_attempts[v_n], p_sources[v_n], p_events[v_n], p_due[v_n], p_until[v_n],
                p_keys[v_n]) as j);
        end loop;
        v_live := array(
            select r.run_id from semel.run as r
            where r.project_id = p_project
              and r.run_id = any (p_ended || array(select x.at from unnest(v_at, p_runs) as x(at, own) where x.at <> x.own))
            order by r.run_id
            for update);
        v_left := array(select x.n from unnest(v_at, p_runs) with ordinality as x(at, own, n)
                        where x.at <> x.own and x.at <> all (v_live));
        exit when v_left = '{}';
        -- Whoever has the key now may wait for a run or a key of ours.
        if v_live <> '{}' or cardinality(v_left) < cardinality(p_runs) or v_round = 3 then
            raise exception using errcode = '40001', message = 'the holder of a correlation key ended meanwhile';
        end if;
    end loop;

    for v_told in
        select x.at as run_id, 'event' as name, x.said, x.event_id, x.source, x.n
        from unnest(v_at, p_runs, p_inputs, p_events, p_sources) with ordinality as x(at, own, said, event_id, source, n)
        where x.at <> x.own
        union all
        select x.run_id, 'resolved', x.said, x.event_id, x.source, x.n
        from unnest(p_ended, p_said, p_by, p_from) with ordinality as x(run_id, said, event_id, source, n)
        where x.run_id = any (v_live)
        order by n, name
    loop
        perform semel.signal_send(p_project, v_told.run_id, v_told.name, v_told.said::text, v_told.event_id::text,
                                  v_told.source, v_told.event_id);
    end loop;
    insert into semel.event_link (project_id, run_id, event_id, relation, content, linked_at)
    select p_project, x.at, x.event_id, 'joined', jsonb_build_object('key', x.key), clock_timestamp()
    from unnest(v_at, p_runs, p_events, p_keys) as x(at, own, event_id, key) where x.at <> x.own;
    update semel.dedupe as d set run_id = x.at from unnest(v_at, p_runs, p_events) as x(at, own, event_id)
    where d.project_id = p_project and d.event_id = any (p_events) and d.event_id = x.event_id and x.at <> x.own;
    return v_at;
end
$$;
