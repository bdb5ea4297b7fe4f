-- Spool: what an ingress kept on its disk comes into the inbox once, in its order.
--
--   record ──written and synced──> answered 202 ──advance + event_accept, one transaction──> accepted ──> removed
--                                                      │ the position is another
--                                                      └──> nothing: it is told where the drain stands
--
-- Fence: the position of the segment, a file that only one process ever writes. It moves in the
--   transaction that accepts the records, from where the drain believed it to be: a record that was
--   accepted and is still on the disk, or is there again out of a backup, is passed over.
-- Locks: the segment's row first, then those of event_accept.
-- Clock: p_now or the server's for people; nothing is decided by it.

-- Move the position of a segment from p_from to p_to; 0 is before its first record. Answers where it
-- stands then: another place than p_to means that nothing was moved. No lock is waited for longer than
-- half a second.
create or replace function semel.spool_advance(
    p_project text, p_source text, p_segment uuid, p_from bigint, p_to bigint, p_now timestamptz default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '500ms' as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_at  bigint;
begin
    perform semel.project_require(p_project);
    if p_from < 0 or p_to <= p_from then
        raise exception using errcode = 'SMQ01',
            message = format('a spool moves forward, not from %s to %s', p_from, p_to);
    end if;
    update semel.spool_segment as s set position = p_to, moved_at = v_now
    where s.project_id = p_project and s.segment_id = p_segment and s.position = p_from
    returning s.position into v_at;
    if v_at is null and p_from = 0 then
        insert into semel.spool_segment as s (project_id, segment_id, source, position, moved_at)
        values (p_project, p_segment, p_source, p_to, v_now)
        on conflict on constraint spool_segment_pkey do nothing
        returning s.position into v_at;
    end if;
    return coalesce(v_at, semel.spool_position(p_project, p_segment));
end
$$;

-- Up to which record a segment is accepted; 0: nothing of it is.
create or replace function semel.spool_position(p_project text, p_segment uuid) returns bigint
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return coalesce((select s.position from semel.spool_segment as s
                     where s.project_id = p_project and s.segment_id = p_segment), 0);
end
$$;

-- Forget a segment whose file is removed.
create or replace function semel.spool_forget(p_project text, p_segment uuid) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    delete from semel.spool_segment as s where s.project_id = p_project and s.segment_id = p_segment;
end
$$;

-- Tell that a spool serves p_sources, and forget those that did not tell so for a week.
create or replace function semel.spool_announce(
    p_project text, p_spool uuid, p_place text, p_sources text[], p_now timestamptz default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    insert into semel.spool as s (project_id, source, spool_id, place, seen_at)
    select p_project, named.source, p_spool, p_place, v_now
    from unnest(p_sources) as named(source) order by named.source
    on conflict on constraint spool_pkey do update set place = excluded.place, seen_at = excluded.seen_at;
    delete from semel.spool as s where s.project_id = p_project and s.seen_at < v_now - interval '7 days';
end
$$;
