-- Deliveries: what came, byte for byte, found again and replayed on purpose.
--
--   quarantined, ignored ──read again──> new or duplicate, under its true id   (event_accept, alert_accept)
--   any other ──event_replay──> new, under an id that names the replay: replay:<delivery>:<n>
--
-- Locks: delivery, then those of event_accept.
-- Clock: p_now, or the server's.

-- Where a delivery is, named by its own id or by that of the event it made.
create or replace function semel.delivery_find(p_project text, p_id uuid)
returns table (received_at timestamptz, delivery_id uuid)
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    -- Both ids begin with the moment of arrival; only a test's clock moves received_at from it.
    v_at timestamptz := semel.uuid_time(p_id);
begin
    perform semel.project_require(p_project);
    return query
        select d.received_at, d.delivery_id from semel.delivery as d
        where d.project_id = p_project
          and d.received_at between v_at - interval '1 second' and v_at + interval '1 second'
          and (d.delivery_id = p_id or d.event_id = p_id and d.verdict = 'new') limit 1;
    if not found then
        return query
            select d.received_at, d.delivery_id from semel.delivery as d
            where d.project_id = p_project
              and (d.delivery_id = p_id or d.event_id = p_id and d.verdict = 'new') limit 1;
    end if;
end
$$;

-- Where the deliveries of an event are. The one that made it came in the event's own millisecond;
-- those that repeat it, whenever they came, are in the index.
create or replace function semel.deliveries_of(p_project text, p_event uuid)
returns table (received_at timestamptz, delivery_id uuid)
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_at timestamptz := semel.uuid_time(p_event);
begin
    perform semel.project_require(p_project);
    return query
        select d.received_at, d.delivery_id from semel.delivery as d
        where d.project_id = p_project and d.event_id = p_event and d.verdict = 'new'
          and d.received_at between v_at - interval '1 ms' and v_at + interval '1 ms'
        union all
        select d.received_at, d.delivery_id from semel.delivery as d
        where d.project_id = p_project and d.event_id = p_event and d.verdict <> 'new';
end
$$;

-- One delivery with its raw bytes; content is null once they are purged, known tells whether it
-- had an identity when it came. No row for an id that is none, or whose delivery is purged.
create or replace function semel.delivery_read(p_project text, p_id uuid)
returns table (
    delivery_id uuid, received_at timestamptz, source text, channel_type text, verdict text, reason text,
    provider_event_id text, event_id uuid, run_id uuid, headers text, content bytea, known boolean
)
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return query
        select d.delivery_id, d.received_at, d.source, d.channel_type, d.verdict, d.reason,
            d.provider_event_id, d.event_id, d.run_id, d.headers::text, coalesce(d.body, b.content),
            d.verdict not in ('quarantined', 'ignored')
        from semel.delivery_find(p_project, p_id) as f
        join semel.delivery as d
            on d.project_id = p_project and d.received_at = f.received_at and d.delivery_id = f.delivery_id
        left join semel.body as b on b.project_id = p_project and b.body_digest = d.body_digest;
end
$$;

-- Accept a delivery's event once more: a new event with a run of its own, linked to the first.
-- p_event: as one of event_accept, without id and body. Each call makes one, also of two at once.
-- Where a live run holds its unique key it makes none, and is told that run. No row when the
-- delivery or its bytes are purged.
create or replace function semel.event_replay(
    p_project text, p_received_at timestamptz, p_delivery uuid, p_event text,
    p_memory interval default '7 days', p_now timestamptz default null
) returns table (verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_old   record;
    v_body  bytea;
    v_count int := 0;
    v_name  text;
    v_new   record;
begin
    perform semel.project_require(p_project);
    select d.source, d.event_id, d.body, d.body_digest into v_old from semel.delivery as d
    where d.project_id = p_project and d.received_at = p_received_at and d.delivery_id = p_delivery
    for update;
    v_body := coalesce(v_old.body, (select b.content from semel.body as b
                                    where b.project_id = p_project and b.body_digest = v_old.body_digest));
    if v_body is null then
        return;
    end if;
    loop
        v_count := v_count + 1;
        v_name := format('replay:%s:%s', p_delivery, v_count);
        exit when not exists (select from semel.dedupe as d where d.project_id = p_project
                              and d.dedupe_key = semel.event_key(v_old.source, v_name));
    end loop;
    select a.* into v_new from semel.event_accept(
        p_project,
        jsonb_build_array(p_event::jsonb || jsonb_build_object(
            'source', v_old.source, 'id', v_name, 'body', 0,
            'reason', format('replay %s of delivery %s', v_count, p_delivery)))::text,
        array[v_body], p_memory, p_now) as a;
    if v_new.verdict = 'new' and v_new.run_id is not null and v_old.event_id is not null then
        insert into semel.event_link (project_id, run_id, event_id, relation, content, linked_at)
        values (p_project, v_new.run_id, v_old.event_id, 'replayed',
                jsonb_build_object('delivery_id', p_delivery), v_now);
    end if;
    return query select v_new.verdict, v_new.event_id, v_new.run_id, v_new.reason;
end
$$;

-- Tell a delivery that had no identity what a replay of it became. Its verdict stays.
create or replace function semel.delivery_settle(
    p_project text, p_received_at timestamptz, p_delivery uuid, p_event uuid, p_run uuid
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    update semel.delivery as d set event_id = p_event, run_id = p_run
    where d.project_id = p_project and d.received_at = p_received_at and d.delivery_id = p_delivery
      and d.verdict in ('quarantined', 'ignored');
end
$$;
