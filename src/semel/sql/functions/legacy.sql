-- Legacy: what another system's table already knows is known here too.
--
-- Locks: dedupe by key.
-- Clock: p_now, or the server's.

-- Remember ids that another system has seen, with the runs it made for them; at most 1000 a call.
-- An import is a sighting: memory counts from it, so that an id which still repeated nothing in
-- the old system does not expire on arrival. first_seen_at is p_seen. An id that is known here
-- keeps its run. imported: new here; known: were here, from an import or otherwise. '' is no id.
create or replace function semel.event_import(
    p_project text, p_source text, p_channel text, p_ids text[], p_runs uuid[], p_seen timestamptz[],
    p_now timestamptz default null
) returns table (imported int, known int)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'SMQ01',
            message = format('%s ids in one call', cardinality(p_ids)), hint = 'Send at most 1000.';
    end if;
    return query
        with old as materialized (
            select distinct on (s.dedupe_key) s.dedupe_key, x.id, x.run_id, s.seen_at, semel.uuid_at(s.seen_at) as event_id
            from unnest(p_ids, p_runs, p_seen) as x(id, run_id, seen)
            cross join lateral (select semel.event_key(p_source, x.id) as dedupe_key,
                                       greatest(least(x.seen, v_now), 'epoch') as seen_at) as s
            where x.id <> ''
            order by s.dedupe_key, s.seen_at
        ), kept as (
            insert into semel.dedupe as d (project_id, dedupe_key, source, channel_type, provider_event_id,
                event_id, run_id, first_seen_at, last_seen_at)
            select p_project, o.dedupe_key, p_source, p_channel, o.id, o.event_id, o.run_id, o.seen_at, v_now
            from old as o order by o.dedupe_key
            on conflict on constraint dedupe_pkey do update set
                last_seen_at = greatest(d.last_seen_at, excluded.last_seen_at)
            returning d.event_id
        )
        select (count(*) filter (where o.event_id is not null))::int, (count(*) filter (where o.event_id is null))::int
        from kept as k left join old as o on o.event_id = k.event_id;
end
$$;
