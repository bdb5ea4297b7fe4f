-- Contents: an id that is not signed does not make an event new.
--
--   content unseen, or past its window ──> it stands for the id that it came with
--   content known ─────────────────────> the event of the first id; the delivery is a redelivery
--   id known, with a content that is not its own ──> conflict (event_accept); the content is forgotten
--
-- Fence: the unique key of content. A second arrival waits for the first one's fate.
-- Locks: content by key, before dedupe by key.
-- Clock: p_now, the sightings' clock of event_accept.

-- p_events with the id of each known content in place of its own, which is kept as member told.
-- Those of one call that share a content share the first one's id. Its window moves by a second at
-- least: an index walks it, and a flood of one content would write there each time.
create or replace function semel.content_resolve(
    p_project text, p_events jsonb, p_memory interval, p_now timestamptz
) returns jsonb
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_events jsonb;
begin
    perform semel.project_require(p_project);
    with offered as materialized (
        select e.n, e.v ->> 'id' as id, semel.event_key(e.v ->> 'source', e.v ->> 'content') as content_key,
            p_now + least(coalesce((e.v ->> 'window')::interval, p_memory), p_memory) as kept_until
        from jsonb_array_elements(p_events) with ordinality as e(v, n)
        where e.v ->> 'content' is not null and e.v ->> 'id' is not null and e.v ->> 'verdict' is null
    ), first as (
        select distinct on (o.content_key) o.* from offered as o order by o.content_key, o.n
    ), known as (
        insert into semel.content as c (project_id, content_key, provider_event_id, kept_until)
        select p_project, f.content_key, f.id, f.kept_until from first as f order by f.content_key
        on conflict on constraint content_pkey do update set
            provider_event_id = case when c.kept_until <= p_now then excluded.provider_event_id else c.provider_event_id end,
            kept_until = case when excluded.kept_until > c.kept_until + interval '1 second' then excluded.kept_until
                              else c.kept_until end
        returning c.content_key, c.provider_event_id
    )
    select jsonb_agg(case when k.provider_event_id is null then e.v
                          when k.provider_event_id = o.id then e.v
                          else e.v || jsonb_build_object('id', k.provider_event_id, 'told', o.id) end order by e.n)
    into v_events
    from jsonb_array_elements(p_events) with ordinality as e(v, n)
    left join offered as o on o.n = e.n
    left join known as k on k.content_key = o.content_key;
    return v_events;
end
$$;

-- Forget contents that came with the id of another: they are no sighting of its event.
create or replace function semel.content_forget(p_project text, p_keys bytea[], p_ids text[]) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    delete from semel.content as c using unnest(p_keys, p_ids) as x(content_key, id)
    where c.project_id = p_project and c.content_key = x.content_key and c.provider_event_id = x.id;
end
$$;

-- Forget contents past their window; p_limit rows at most.
create or replace function semel.content_expire(
    p_project text, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count int;
begin
    perform semel.project_require(p_project);
    with old as materialized (
        select c.content_key from semel.content as c
        where c.project_id = p_project and c.kept_until <= v_now
        order by c.kept_until limit p_limit
        for update skip locked
    ), gone as (
        delete from semel.content as c using old as o
        where c.project_id = p_project and c.content_key = o.content_key
        returning 1
    )
    select count(*) into v_count from gone;
    return v_count;
end
$$;
