-- Notifications: those of Alertmanager that arrive together are judged together, each as if alone.
-- The states of an alert and what a change of them means stand in alerts.sql.
--
--   alerts ──insert or lock the folds──> change of each ──by notification──> events, or none
--                                                             │                  └──> delivery: duplicate, late, reminder
--                                                             └──> dedupe, fold, run PENDING, link, delivery: new
--                                                                    (or joined; a resolved alert's run is told)
--
-- Fence: the fold rows' locks. Their verdict is final; the dedupe row under it can only be new.
-- Locks: fold by (source, fingerprint), then dedupe by key, then unique keys, then the runs that are
--   told, by run_id.
-- Clock: p_now or the server's for the grace and for sightings; a run's times are the server's.

-- Judge and keep notifications, a few arrays at a time: the work of each statement is shared. The
-- correlation key of one is its groupKey: where the agent joins, its events join the group's live run.
-- p_notifications: JSON array of {source, agent, envelope, alerts, headers, grace, run_on, unit,
--   priority, reminder}, as the arguments of alert_accept. p_bodies: their bytes, in the same order.
-- No alert may stand in two of them: the second would be judged by what was before the first.
-- At most 256. Answers a row for each event, or for each notification that makes none; n and ord from 1.
create or replace function semel.notification_fold(
    p_project       text,
    p_notifications text,
    p_bodies        bytea[],
    p_now           timestamptz default null
) returns table (n int, ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog set plan_cache_mode = force_generic_plan as $$
declare
    c_same_start constant bigint := 60 * 1000000000::bigint;       -- peers stamp one episode this far apart
    c_same_bytes constant interval := '2 minutes';                 -- twice the cap of a sender's backoff
    c_unknown constant uuid := '00000000-0000-0000-0000-000000000000';
    v_real     timestamptz := clock_timestamp();
    v_now      timestamptz := coalesce(p_now, v_real);
    v_told     jsonb := p_notifications::jsonb;
    v_count    int := jsonb_array_length(v_told);
    v_bad      boolean;
    -- Of each notification, by n.
    v_from     text[];
    v_agent    text[];
    v_grace    interval[];
    v_run_on   text[];
    v_unit     text[];
    v_priority int[];
    v_headers  jsonb[];
    v_envelope jsonb[];
    v_digest   bytea[];
    v_joins    text[];   -- null: its agent does not join
    v_reminder interval[];  -- null: reminders are counted only
    v_more     text[];   -- said besides the reason
    -- Of each alert.
    v_n        int[];
    v_source   text[];
    v_print    text[];
    v_status   text[];
    v_starts   bigint[];
    v_ends     bigint[];
    v_alert    jsonb[];
    v_change   text[];   -- null: it changes nothing
    v_episode  uuid[];
    v_run      uuid[];   -- of the episode that was
    v_at       int[];    -- its event
    -- Of each notification that changes nothing.
    u_n        int[];
    u_verdict  text[];
    u_reason   text[];
    u_event    uuid[];
    u_run      uuid[];
    u_key      bytea[];
    -- Of each event.
    e_n        int[];
    e_ord      int[];
    e_at       int[];
    e_event    uuid[];
    e_run      uuid[];
    e_wants    boolean[];
    e_name     text[];
    e_key      bytea[];
    e_why      text[];
    e_input    jsonb[];
    e_joined   int[];    -- those that join, or make the run that others will
    v_place    uuid[];   -- and where they are now
    -- Of each run that is told of resolved alerts.
    t_run      uuid[];
    t_said     jsonb[];
    t_event    uuid[];
    t_from     text[];
begin
    perform semel.project_require(p_project);
    if v_count > 256 then
        raise exception using errcode = 'SMQ01',
            message = format('%s notifications in one call', v_count), hint = 'Send at most 256.';
    end if;

    select array_agg(t.v ->> 'source' order by t.k), array_agg(t.v ->> 'agent' order by t.k),
        array_agg((t.v ->> 'grace')::interval order by t.k), array_agg(t.v ->> 'run_on' order by t.k),
        array_agg(t.v ->> 'unit' order by t.k), array_agg((t.v ->> 'priority')::int order by t.k),
        array_agg(t.v -> 'headers' order by t.k), array_agg(t.v -> 'envelope' order by t.k),
        array_agg(sha256(p_bodies[t.k]) order by t.k),
        array_agg(case when t.v -> 'envelope' ->> 'groupKey' <> '' and semel.agent_joins(p_project, t.v ->> 'agent')
                       then semel.correlation_key(t.v ->> 'source', t.v -> 'envelope' ->> 'groupKey') end order by t.k),
        array_agg((t.v ->> 'reminder')::interval order by t.k), array_agg(semel.notification_more(t.v -> 'envelope') order by t.k)
    into v_from, v_agent, v_grace, v_run_on, v_unit, v_priority, v_headers, v_envelope, v_digest, v_joins, v_reminder, v_more
    from jsonb_array_elements(v_told) with ordinality as t(v, k);

    select array_agg(a.k), array_agg(a.source), array_agg(a.fingerprint), array_agg(a.status),
        array_agg(a.starts_ns), array_agg(a.ends_ns), array_agg(a.alert),
        count(*) > count(distinct (a.source, a.fingerprint))
    into v_n, v_source, v_print, v_status, v_starts, v_ends, v_alert, v_bad
    from (select distinct on (v_from[t.k], x.fingerprint, t.k) t.k::int as k, v_from[t.k] as source, x.*
          from jsonb_array_elements(v_told) with ordinality as t(v, k)
          cross join lateral jsonb_to_recordset(t.v -> 'alerts')
              as x(fingerprint text, status text, starts_ns bigint, ends_ns bigint, alert jsonb)
          order by v_from[t.k], x.fingerprint, t.k) as a;
    if v_bad then
        raise exception using errcode = 'SMQ01', message = 'an alert stands in two notifications of one call',
            hint = 'Send the second one in a call of its own, after the first.';
    end if;

    -- The insert waits for a concurrent first sighting of the same alert. No event has an empty
    -- key, so that is how a row of ours is known until it gets its event below.
    insert into semel.fold (project_id, source, fingerprint, status, starts_ns, ends_ns, episode,
        event_id, event_key, changed_at, seen_at, seen_digest)
    select p_project, a.source, a.fingerprint, a.status, a.starts_ns, a.ends_ns, c_unknown, c_unknown, '',
        v_now, v_now, v_digest[a.n]
    from unnest(v_n, v_source, v_print, v_status, v_starts, v_ends) as a(n, source, fingerprint, status, starts_ns, ends_ns)
    order by a.source, a.fingerprint
    on conflict on constraint fold_pkey do nothing;

    with judged as materialized (
        select a.*, row_number() over (order by a.source, a.fingerprint)::int as i,
            f.status as was, f.changed_at, f.event_id, f.event_key, f.run_id, f.episode,
            f.seen_digest = v_digest[a.n] and v_now - f.seen_at <= c_same_bytes as same_bytes,
            case
                when f.event_key = '' then case a.status when 'firing' then 'fired' else 'orphaned' end
                when a.status = 'firing' and f.status = 'firing' then
                    case when a.starts_ns > f.starts_ns + c_same_start then 'superseded'
                         when v_now - f.changed_at >= v_reminder[a.n] and not r.lives then 'reminded' end
                when f.status = 'firing' then
                    case when a.starts_ns >= f.starts_ns - c_same_start then 'resolved' end
                when a.status = 'firing' then
                    case when s.same and v_now - f.changed_at <= v_grace[a.n] then 'late'
                         when s.same or a.starts_ns > f.starts_ns then 'fired' end
                when s.same then
                    case when a.ends_ns <= f.ends_ns then null
                         when f.ends_ns = 0 then 'orphaned'  -- the episode was closed as stale
                         when f.late_at is not null then 'confirmed' end
                when a.starts_ns > f.starts_ns then 'orphaned'
            end as change
        from (select x.* from unnest(v_n, v_source, v_print, v_status, v_starts, v_ends, v_alert)
                  as x(n, source, fingerprint, status, starts_ns, ends_ns, alert)
              order by x.source, x.fingerprint) as a
        -- Lateral, so that each row is found by its key however many the source has.
        cross join lateral (
            select f.* from semel.fold as f
            where f.project_id = p_project and f.source = a.source and f.fingerprint = a.fingerprint
            for update) as f
        -- What began before the stored end cannot be an episode after it: a peer stamped it.
        cross join lateral (select abs(a.starts_ns - f.starts_ns) <= c_same_start
            and a.starts_ns <= greatest(f.starts_ns, f.ends_ns) as same) as s
        -- Who is still at it needs no reminder. Asked only where one would be an event.
        cross join lateral (select v_reminder[a.n] is not null and exists (
            select from semel.run as o where o.project_id = p_project and o.run_id = f.run_id) as lives) as r
    ), alert as (
        select array_agg(j.n order by j.i) as n, array_agg(j.source order by j.i) as source,
            array_agg(j.fingerprint order by j.i) as print, array_agg(j.status order by j.i) as status,
            array_agg(j.starts_ns order by j.i) as starts, array_agg(j.ends_ns order by j.i) as ends,
            array_agg(j.alert order by j.i) as alert, array_agg(j.change order by j.i) as change,
            array_agg(case when j.change in ('resolved', 'reminded') then j.episode else gen_random_uuid() end order by j.i) as episode,
            array_agg(j.run_id order by j.i) as run,
            array_agg(case when v_unit[j.n] = 'alert' then j.i else -j.n end order by j.i) as at
        from judged as j
    ), unchanged as (
        select k.n, bool_or(j.change = 'late') as late, bool_or(j.was = 'firing') as open,
            coalesce(bool_and(j.same_bytes), true) as same_bytes
        from generate_series(1, v_count) as k(n) left join judged as j on j.n = k.n
        group by k.n having coalesce(bool_and(j.change = 'late'), true)
    ), last as (
        select distinct on (u.n) u.n, u.same_bytes, j.event_id, j.run_id, j.event_key,
            case when u.late then 'late' when u.open and not u.same_bytes then 'reminder' else 'duplicate' end as verdict
        from unchanged as u left join judged as j on j.n = u.n
        order by u.n, j.changed_at desc, j.fingerprint
    ), seen as (
        select array_agg(l.n order by l.n) as n, array_agg(l.verdict order by l.n) as verdict,
            array_agg(case l.verdict
                when 'late' then format('a firing within %s after its resolution: kept, not yet an episode', v_grace[l.n])
                when 'reminder' then 'every alert in it is known and at least one is still open'
                else case when l.same_bytes then 'the same notification again' else 'every alert in it is known' end
            end order by l.n) as reason,
            array_agg(l.event_id order by l.n) as event, array_agg(l.run_id order by l.n) as run,
            array_agg(l.event_key order by l.n) as key
        from last as l
    )
    select a.n, a.source, a.print, a.status, a.starts, a.ends, a.alert, a.change, a.episode, a.run, a.at,
        s.n, s.verdict, s.reason, s.event, s.run, s.key
    into v_n, v_source, v_print, v_status, v_starts, v_ends, v_alert, v_change, v_episode, v_run, v_at,
        u_n, u_verdict, u_reason, u_event, u_run, u_key
    from alert as a cross join seen as s;
    u_reason := array(select x.reason || v_more[x.n] from unnest(u_n, u_reason) with ordinality as x(n, reason, k) order by x.k);

    -- An event of each notification for all that it changes, or one for each changed alert.
    with change as (
        select x.*, row_number() over (partition by x.at order by x.fingerprint) as nth
        from unnest(v_n, v_source, v_print, v_status, v_alert, v_change, v_episode, v_run, v_at)
            as x(n, source, fingerprint, status, alert, change, episode, run_id, at)
        where x.change <> 'late'
    ), event as (
        select c.at, c.n, row_number() over (partition by c.n order by min(c.fingerprint))::int as ord,
            bool_or(c.change in ('fired', 'superseded', 'confirmed', 'reminded')) or v_run_on[c.n] = 'firing+resolved' as wants_run,
            (array_agg(c.run_id order by c.nth) filter (where c.run_id is not null))[1] as told_run,
            semel.parts_digest(variadic array[c.source] || array_agg(part.part order by c.nth, part.k)) as digest,
            string_agg(format('alert %s %s', c.fingerprint, case c.change
                when 'fired' then 'fires' when 'superseded' then 'fires anew' when 'resolved' then 'is resolved'
                when 'reminded' then 'still fires'
                when 'confirmed' then 'fired within the grace and is resolved'
                else 'is resolved, its firing was never seen' end), ', ' order by c.nth)
                filter (where c.nth <= 5 and part.k = 1) as why,
            v_envelope[c.n] || jsonb_build_object(
                'status', case when bool_or(c.status = 'firing') then 'firing' else 'resolved' end,
                'alerts', jsonb_agg(c.alert order by c.nth) filter (where part.k = 1)) as input
        from change as c
        -- An episode has one firing and one resolution, and as many reminders as there are moments.
        cross join lateral (values (1, c.fingerprint), (2, c.episode::text),
            (3, case c.change when 'reminded' then 'reminded ' || extract(epoch from v_now) else c.status end)) as part(k, part)
        group by c.at, c.n, c.source
    )
    select array_agg(e.n), array_agg(e.ord), array_agg(e.at), array_agg(semel.uuid_at(v_now)),
        array_agg(case when e.wants_run and v_agent[e.n] is not null then semel.uuid_at(v_real) else e.told_run end),
        array_agg(e.wants_run), array_agg('am1:' || encode(e.digest, 'hex')),
        array_agg(semel.event_key(v_from[e.n], 'am1:' || encode(e.digest, 'hex'))), array_agg(e.why || v_more[e.n]), array_agg(e.input)
    into e_n, e_ord, e_at, e_event, e_run, e_wants, e_name, e_key, e_why, e_input
    from event as e;

    if u_key is not null then
        perform from semel.dedupe as d where d.project_id = p_project and d.dedupe_key = any (u_key)
        order by d.dedupe_key for update;
        update semel.dedupe as d set last_seen_at = greatest(d.last_seen_at, v_now),
            hits = d.hits + cardinality(array_positions(u_key, d.dedupe_key))
        where d.project_id = p_project and d.dedupe_key = any (u_key);
    end if;

    if e_n is not null then
        -- No ON CONFLICT: the episodes are new, so a row under this key is an error.
        insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id,
            event_id, run_id, first_seen_at, last_seen_at)
        select p_project, e.key, v_from[e.n], 'alertmanager', e.name, e.event_id, e.run_id, v_now, v_now
        from unnest(e_n, e_key, e_name, e_event, e_run) as e(n, key, name, event_id, run_id)
        order by e.key;

        -- Before the folds learn which run each episode has.
        if 'resolved' = any (v_change) then
            select array_agg(t.run_id), array_agg(t.said), array_agg(t.event_id), array_agg(t.source)
            into t_run, t_said, t_event, t_from
            from (select c.run_id, e.event_id, v_from[e.n] as source, jsonb_agg(c.alert order by c.fingerprint) as said
                  from unnest(v_print, v_alert, v_change, v_run, v_at) as c(fingerprint, alert, change, run_id, at)
                  join unnest(e_at, e_event, e_n) as e(at, event_id, n) on e.at = c.at
                  where c.change = 'resolved' and c.run_id is not null
                  group by c.run_id, e.event_id, e.n
                  order by e.n, e.event_id, c.run_id) as t;
        end if;
        select array_agg(e.i order by e.i) into e_joined
        from unnest(e_n, e_wants) with ordinality as e(n, wants_run, i)
        where e.wants_run and v_agent[e.n] is not null and v_joins[e.n] is not null;
        if e_joined is not null or t_run is not null then
            select semel.event_join(p_project, coalesce(array_agg(e_run[e.i] order by e.k), '{}'),
                array_agg(v_agent[e_n[e.i]] order by e.k), array_agg(e_input[e.i] order by e.k),
                array_agg(v_priority[e_n[e.i]] order by e.k), array_agg(null::int),
                array_agg(v_from[e_n[e.i]] order by e.k), array_agg(e_event[e.i] order by e.k),
                array_agg(v_joins[e_n[e.i]] order by e.k), array_agg(null::timestamptz), array_agg(null::timestamptz),
                coalesce(t_run, '{}'), t_said, t_event, t_from)
            into v_place from unnest(e_joined) with ordinality as e(i, k);
            for v_k in 1 .. coalesce(cardinality(e_joined), 0) loop
                if v_place[v_k] <> e_run[e_joined[v_k]] then
                    e_run[e_joined[v_k]] := v_place[v_k];
                    e_why[e_joined[v_k]] := e_why[e_joined[v_k]] || '; it joins the live run of its group';
                end if;
            end loop;
        end if;
    end if;

    -- The names are told twice, so that no plan reads the whole fold of a source.
    update semel.fold as f set
        -- What came before the end of an episode that had a run says nothing of another one after it: a
        -- replay, or a spool, brings it late.
        late_at = case when x.change = 'late' and (v_now >= f.changed_at or f.run_id is null) then v_now
                       when x.change is null or x.change = 'late' then f.late_at end,
        seen_at = case when x.change is null then greatest(f.seen_at, v_now) else v_now end,
        seen_digest = v_digest[x.n],
        starts_ns = case
            when x.change = 'late' then f.starts_ns
            when x.change in ('resolved', 'reminded') or x.change is null and x.status = f.status then least(f.starts_ns, x.starts_ns)
            when x.change is null then f.starts_ns
            else x.starts_ns end,
        status = case when x.event_id is null then f.status else x.status end,
        ends_ns = case when x.event_id is null then f.ends_ns else x.ends_ns end,
        episode = case when x.event_id is null then f.episode else x.episode end,
        changed_at = case when x.event_id is null then f.changed_at else v_now end,
        event_id = coalesce(x.event_id, f.event_id),
        event_key = coalesce(x.event_key, f.event_key),
        run_id = case when x.event_id is null or x.change = 'resolved' and v_run_on[x.n] = 'firing' then f.run_id
                      when x.wants_run then x.run_id end
    from (select a.*, e.event_id, e.event_key, e.run_id, e.wants_run
          from unnest(v_n, v_source, v_print, v_status, v_starts, v_ends, v_change, v_episode, v_at)
              as a(n, source, fingerprint, status, starts_ns, ends_ns, change, episode, at)
          left join unnest(e_at, e_event, e_key, e_run, e_wants) as e(at, event_id, event_key, run_id, wants_run)
              on e.at = a.at and a.change <> 'late') as x
    where f.project_id = p_project and f.source = any (v_source) and f.fingerprint = any (v_print)
      and f.source = x.source and f.fingerprint = x.fingerprint
      and (x.change is not null or f.status = x.status and abs(x.starts_ns - f.starts_ns) <= c_same_start);

    if e_n is not null then
        -- The runs of the episodes that ended are told.
        insert into semel.event_link (project_id, run_id, event_id, relation, content, linked_at)
        select p_project, c.run_id, e.event_id, min(c.change), jsonb_agg(c.alert order by c.fingerprint), v_now
        from unnest(v_print, v_alert, v_change, v_run, v_at) as c(fingerprint, alert, change, run_id, at)
        join unnest(e_at, e_event) as e(at, event_id) on e.at = c.at
        where c.change in ('resolved', 'superseded', 'reminded') and c.run_id is not null
        group by c.run_id, e.event_id
        -- It joined that very run: what it says of it tells more.
        on conflict on constraint event_link_pkey do update set
            relation = excluded.relation, content = excluded.content;
        perform semel.run_create(p_project, array_agg(e.run_id), array_agg(v_agent[e.n]), array_agg(e.input),
            array_agg(v_priority[e.n]), array_agg(null::int), array_agg(v_from[e.n]), array_agg(e.event_id))
        from unnest(e_n, e_run, e_input, e_event, e_wants) as e(n, run_id, input, event_id, wants_run)
        where e.wants_run and v_agent[e.n] is not null and v_joins[e.n] is null
        having count(*) > 0;
    end if;

    perform semel.body_keep(p_project, p_bodies, v_now);
    insert into semel.delivery (project_id, delivery_id, received_at, source, channel_type, verdict, reason,
        provider_event_id, event_id, run_id, body_digest, body, headers)
    select p_project, semel.uuid_at(v_real), v_now, v_from[d.n], 'alertmanager', d.verdict, d.reason,
        d.name, d.event_id, d.run_id,
        case when not semel.body_is_small(p_bodies[d.n]) then v_digest[d.n] end,
        case when semel.body_is_small(p_bodies[d.n]) then p_bodies[d.n] end, v_headers[d.n]
    from (select e.n, 'new' as verdict, e.reason, e.name, e.event_id, e.run_id
          from unnest(e_n, e_why, e_name, e_event, e_run) as e(n, reason, name, event_id, run_id)
          union all
          select u.n, u.verdict, u.reason, null, u.event_id, u.run_id
          from unnest(u_n, u_verdict, u_reason, u_event, u_run) as u(n, verdict, reason, event_id, run_id)) as d;

    return query
        select e.n, e.ord, 'new', e.event_id, e.run_id, e.reason
        from unnest(e_n, e_ord, e_event, e_run, e_why) as e(n, ord, event_id, run_id, reason)
        union all
        select u.n, 1, u.verdict, u.event_id, u.run_id, u.reason
        from unnest(u_n, u_verdict, u_event, u_run, u_reason) as u(n, verdict, event_id, run_id, reason)
        order by 1, 2;
end
$$;

-- What an envelope says of the notification beside its alerts, to stand behind the reason of its verdict.
create or replace function semel.notification_more(p_envelope jsonb) returns text
language sql immutable set search_path = pg_catalog as $$
    select case when p_envelope ->> 'notification_reason' = 'semel reconcile' then '; the reconcile poll saw it' else '' end
        || case when jsonb_typeof(p_envelope -> 'truncatedAlerts') = 'number' and p_envelope -> 'truncatedAlerts' > '0'
           then format('; Alertmanager cut %s alerts off, of which nothing is known: set its max_alerts to 0',
                       left(p_envelope ->> 'truncatedAlerts', 20)) else '' end
$$;

-- notification_fold for strangers' notifications: no lock is waited for longer than half a second,
-- so that one slow twin does not hold up the others. On any error nothing is kept, and the caller
-- sends them one by one.
create or replace function semel.notification_gather(
    p_project text, p_notifications text, p_bodies bytea[], p_now timestamptz default null
) returns table (n int, ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '500ms' as $$
begin
    perform semel.project_require(p_project);
    return query select * from semel.notification_fold(p_project, p_notifications, p_bodies, p_now);
end
$$;
