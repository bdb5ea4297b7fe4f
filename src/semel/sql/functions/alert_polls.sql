-- Alert polls: what Alertmanager's API says now is compared with what is known of its alerts, so that
-- a notification which never came is made good.
--
--   firing there, no open episode here ──> found: told to notification_fold as a notification
--   open here, not there since p_gone  ──> gone: told to notification_fold as its resolution
--   open in both ───────────────────────> seen: it does not go stale
--
-- Fence: none is needed. The fold judges whatever is found as it judges a notification, so a second
--   poller, or the notification itself before or after, makes nothing twice; the lease saves work.
-- Locks: poll, then fold by fingerprint; what is locked is left to the next poll.
-- Clock: p_now, or the server's. Alertmanager's own is never compared with it but by its alerts' starts.

-- Take or keep the poll of a source for p_lease; answers the moment by the database's clock, or null
-- where another process has it. What is fetched afterwards is no older than that moment.
create or replace function semel.alert_poll_take(
    p_project text, p_source text, p_holder uuid, p_lease interval, p_now timestamptz default null
) returns timestamptz
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    insert into semel.alert_poll as p (project_id, source, holder, lease_until, tried_at)
    values (p_project, p_source, p_holder, v_now + p_lease, v_now)
    on conflict on constraint alert_poll_pkey do update set
        holder = excluded.holder, lease_until = excluded.lease_until, tried_at = v_now
    where p.holder is null or p.holder = p_holder or p.lease_until <= v_now;
    return case when found then v_now end;
end
$$;

-- Compare what the API said with the folds of a source.
-- p_alerts: JSON array of {fingerprint, starts_ns, news}; all that it has in any state, news for those
--   that it would notify of. p_asked: alert_poll_take's moment. p_settle: an alert that began within it
--   may still be told of. p_gone: how long one must be absent. p_began: when that Alertmanager started, in
--   its words: it forgets its alerts then, and is told of them again, so absence is counted anew.
-- Answers what is found and what is gone; of the gone what is known of them, with the last moment
-- somebody spoke of them.
create or replace function semel.alert_poll_compare(
    p_project text, p_source text, p_alerts text, p_asked timestamptz,
    p_settle interval, p_gone interval, p_began text, p_now timestamptz default null
) returns table (what text, fingerprint text, starts_ns bigint, seen_ns bigint, run_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    c_same_start constant bigint := 60 * 1000000000::bigint;  -- as notification_fold's
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_began boolean;
begin
    perform semel.project_require(p_project);
    update semel.alert_poll as p set began = p_began
    where p.project_id = p_project and p.source = p_source and p.began is distinct from p_began;
    v_began := found;

    -- An absence that was counted before a restart, or before the last word of the alert, is none.
    with there as materialized (
        select x.fingerprint from jsonb_to_recordset(p_alerts::jsonb) as x(fingerprint text)
    ), open as materialized (
        select f.fingerprint, f.fingerprint in (select t.fingerprint from there as t) as is_there
        from semel.fold as f
        where f.project_id = p_project and f.source = p_source and f.status = 'firing'
        order by f.fingerprint
        for update skip locked
    )
    update semel.fold as f set
        missed_at = case when o.is_there then null
                         when v_began or f.missed_at is null or f.missed_at < f.seen_at then v_now
                         else f.missed_at end,
        seen_at = case when o.is_there then greatest(f.seen_at, p_asked) else f.seen_at end,
        seen_digest = case when o.is_there then '' else f.seen_digest end
    from open as o
    where f.project_id = p_project and f.source = p_source and f.fingerprint = o.fingerprint
      and case when o.is_there then f.missed_at is not null or f.seen_at <= v_now - interval '1 hour'
               else v_began or f.missed_at is null or f.missed_at < f.seen_at end;

    return query
        select 'found', x.fingerprint, x.starts_ns, null::bigint, null::uuid
        from jsonb_to_recordset(p_alerts::jsonb) as x(fingerprint text, starts_ns bigint, news boolean)
        left join semel.fold as f
            on f.project_id = p_project and f.source = p_source and f.fingerprint = x.fingerprint
        where x.news and x.starts_ns <= extract(epoch from v_now - p_settle) * 1000000000
          and case when f.fingerprint is null then true
                   when f.changed_at >= p_asked then false  -- it was told of since
                   when f.status = 'firing' then x.starts_ns > f.starts_ns + c_same_start
                   else x.starts_ns >= f.starts_ns - c_same_start end
        union all
        select 'gone', f.fingerprint, f.starts_ns, (extract(epoch from f.seen_at) * 1000000000)::bigint, f.run_id
        from semel.fold as f
        where f.project_id = p_project and f.source = p_source and f.status = 'firing'
          and f.missed_at >= f.seen_at and f.missed_at <= v_now - p_gone
        order by 1, 2;
end
$$;

-- Say what a poll came to, while p_holder has it. p_fault: why it was no poll; null: it was one.
create or replace function semel.alert_poll_report(
    p_project text, p_source text, p_holder uuid, p_fault text, p_firing int default 0,
    p_found int default 0, p_ended int default 0, p_now timestamptz default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.alert_poll as p set
        fault = p_fault,
        polled_at = case when p_fault is null then v_now else p.polled_at end,
        firing = case when p_fault is null then p_firing else p.firing end,
        found = p.found + p_found, ended = p.ended + p_ended
    where p.project_id = p_project and p.source = p_source and p.holder = p_holder;
end
$$;

-- Let another process poll at once.
create or replace function semel.alert_poll_leave(p_project text, p_source text, p_holder uuid) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    update semel.alert_poll as p set holder = null
    where p.project_id = p_project and p.source = p_source and p.holder = p_holder;
end
$$;
