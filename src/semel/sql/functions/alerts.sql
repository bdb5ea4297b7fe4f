-- Alerts: an Alertmanager notification is folded into the state of its alerts, and only what
-- it changes is new. Alertmanager repeats itself (retries, HA peers, reminders, grown groups),
-- so neither its bytes nor its group key say whether something happened.
--
--   no row    ──firing──> firing                new
--   firing    ──firing, starts over 60 s later──> firing   new, the old episode is superseded
--   firing    ──resolved──> resolved            new: told to the episode's run
--   resolved  ──firing, later start, or same start after the grace──> firing   new
--   resolved  ──firing, same start, within the grace──> resolved   late: kept, and judged again
--   resolved  ──resolved, later end, after a late firing──> resolved   new: that firing was real
--   no row    ──resolved──> resolved            new, and by default no run
--   all else: duplicate (the same bytes, or nothing open) or reminder (an open episode again)
--
-- Fence: the fold row's lock. Its verdict is final; the dedupe row under it can only be new.
-- Locks: fold by fingerprint, then dedupe, then run.
-- Clock: p_now or the server's for the grace and for sightings; a run's times are the server's.
-- Source of the rules: captured traffic of Alertmanager 0.25; see docs/decisions/.

-- Accept one notification. p_alerts: JSON array of {fingerprint, status, starts_ns, ends_ns,
-- alert}. The run's input is p_envelope (an object) with `alerts` narrowed to what changed.
-- p_run_on: firing, or firing+resolved. p_unit: notification, or alert (an event for each).
create or replace function semel.alert_accept(
    p_project  text,
    p_source   text,
    p_agent    text,
    p_envelope text,
    p_alerts   text,
    p_body     bytea,
    p_headers  text default '{}',
    p_grace    interval default '120 seconds',
    p_run_on   text default 'firing',
    p_unit     text default 'notification',
    p_priority int default 5,
    p_now      timestamptz default null
) returns table (ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    c_same_start constant bigint := 60 * 1000000000::bigint;       -- peers stamp one episode this far apart
    c_same_bytes constant interval := '2 minutes';                 -- twice the cap of a sender's backoff
    v_real     timestamptz := clock_timestamp();
    v_now      timestamptz := coalesce(p_now, v_real);
    v_digest   bytea := sha256(p_body);
    v_envelope jsonb := p_envelope::jsonb;
    v_born     text[];
    v_alert    record;
    v_list     jsonb[] := '{}';
    v_changes  jsonb;
    v_change   text;
    v_same     boolean;
    v_episode  uuid;
    v_late     boolean := false;
    v_open     boolean := false;
    v_bytes    boolean := true;
    v_last     record;
    v_event    record;
    v_event_id uuid;
    v_run_id   uuid;
    v_key      bytea;
    v_name     text;
    v_why      text;
begin
    perform semel.project_require(p_project);

    -- The insert waits for a concurrent first sighting of the same alert.
    with alert as (
        select distinct on (a.fingerprint) a.fingerprint, a.status, a.starts_ns, a.ends_ns
        from jsonb_to_recordset(p_alerts::jsonb) as a(fingerprint text, status text, starts_ns bigint, ends_ns bigint)
        order by a.fingerprint
    ), born as (
        insert into semel.fold (project_id, source, fingerprint, status, starts_ns, ends_ns, episode,
            event_id, event_key, changed_at, seen_at, seen_digest)
        select p_project, p_source, a.fingerprint, a.status, a.starts_ns, a.ends_ns, gen_random_uuid(),
            gen_random_uuid(), '', v_now, v_now, v_digest
        from alert as a order by a.fingerprint
        on conflict on constraint fold_pkey do nothing
        returning fold.fingerprint
    )
    select coalesce(array_agg(born.fingerprint), '{}') into v_born from born;

    for v_alert in
        select a.fingerprint, a.status, a.starts_ns, a.ends_ns, a.alert, f.status as was, f.starts_ns as was_starts,
               f.ends_ns as was_ends, f.changed_at, f.seen_at, f.seen_digest, f.late_at, f.run_id, f.episode
        from (select distinct on (x.fingerprint) x.*
              from jsonb_to_recordset(p_alerts::jsonb)
                   as x(fingerprint text, status text, starts_ns bigint, ends_ns bigint, alert jsonb)
              order by x.fingerprint) as a
        -- Lateral, so that each row is found by its key however many the source has.
        cross join lateral (
            select f.* from semel.fold as f
            where f.project_id = p_project and f.source = p_source and f.fingerprint = a.fingerprint
            for update) as f
        order by a.fingerprint
    loop
        -- What began before the stored end cannot be an episode after it: a peer stamped it.
        v_same := abs(v_alert.starts_ns - v_alert.was_starts) <= c_same_start
            and v_alert.starts_ns <= greatest(v_alert.was_starts, v_alert.was_ends);
        v_change := case
            when v_alert.fingerprint = any (v_born) then case v_alert.status when 'firing' then 'fired' else 'orphaned' end
            when v_alert.status = 'firing' and v_alert.was = 'firing' then
                case when v_alert.starts_ns > v_alert.was_starts + c_same_start then 'superseded' end
            when v_alert.was = 'firing' then
                case when v_alert.starts_ns >= v_alert.was_starts - c_same_start then 'resolved' end
            when v_alert.status = 'firing' then
                case when v_same and v_now - v_alert.changed_at <= p_grace then 'late'
                     when v_same or v_alert.starts_ns > v_alert.was_starts then 'fired' end
            when v_same then
                case when v_alert.ends_ns <= v_alert.was_ends then null
                     when v_alert.was_ends = 0 then 'orphaned'  -- the episode was closed as stale
                     when v_alert.late_at is not null then 'confirmed' end
            when v_alert.starts_ns > v_alert.was_starts then 'orphaned'
        end;
        v_open := v_open or v_alert.was = 'firing' or v_change = 'fired';
        v_bytes := v_bytes and v_alert.seen_digest = v_digest and v_now - v_alert.seen_at <= c_same_bytes;
        if v_change = 'late' then
            v_late := true;
            update semel.fold as f set late_at = v_now, seen_at = v_now, seen_digest = v_digest
            where f.project_id = p_project and f.source = p_source and f.fingerprint = v_alert.fingerprint;
        elsif v_change is null then
            update semel.fold as f set seen_at = greatest(f.seen_at, v_now), seen_digest = v_digest,
                starts_ns = case when v_alert.status = f.status then least(f.starts_ns, v_alert.starts_ns) else f.starts_ns end
            where f.project_id = p_project and f.source = p_source and f.fingerprint = v_alert.fingerprint
              and f.status = v_alert.status and abs(v_alert.starts_ns - f.starts_ns) <= c_same_start;
        else
            v_episode := case when v_change = 'resolved' then v_alert.episode else gen_random_uuid() end;
            v_list := v_list || jsonb_build_object(
                'fingerprint', v_alert.fingerprint, 'change', v_change, 'status', v_alert.status,
                'alert', v_alert.alert, 'run_id', v_alert.run_id, 'episode', v_episode);
            update semel.fold as f set
                status = v_alert.status, ends_ns = v_alert.ends_ns, changed_at = v_now, seen_at = v_now,
                seen_digest = v_digest, late_at = null,
                starts_ns = case when v_change = 'resolved' then least(f.starts_ns, v_alert.starts_ns) else v_alert.starts_ns end,
                episode = v_episode
            where f.project_id = p_project and f.source = p_source and f.fingerprint = v_alert.fingerprint;
        end if;
    end loop;

    perform semel.body_keep(p_project, array[p_body], v_now);

    if v_list = '{}' then
        select f.event_id, f.event_key, f.run_id, f.fingerprint, f.status into v_last
        from semel.fold as f
        where f.project_id = p_project and f.source = p_source
          and f.fingerprint = any (array(select a.fingerprint
                                         from jsonb_to_recordset(p_alerts::jsonb) as a(fingerprint text)))
        order by f.changed_at desc, f.fingerprint limit 1;
        ord := 1;
        event_id := v_last.event_id;
        run_id := v_last.run_id;
        if v_late then
            verdict := 'late';
            reason := format('a firing within %s after its resolution: kept, not yet an episode', p_grace);
        elsif v_open and not v_bytes then
            verdict := 'reminder';
            reason := 'every alert in it is known and at least one is still open';
        else
            verdict := 'duplicate';
            reason := case when v_bytes then 'the same notification again' else 'every alert in it is known' end;
        end if;
        update semel.dedupe as d set last_seen_at = greatest(d.last_seen_at, v_now), hits = d.hits + 1
        where d.project_id = p_project and d.dedupe_key = v_last.event_key;
        insert into semel.delivery (project_id, delivery_id, received_at, source, channel_type, verdict, reason,
            provider_event_id, event_id, run_id, body_digest, headers)
        values (p_project, semel.uuid_at(v_real), v_now, p_source, 'alertmanager', verdict, reason,
            null, v_last.event_id, v_last.run_id, v_digest, p_headers::jsonb);
        return next;
        return;
    end if;

    v_changes := to_jsonb(v_list);
    for v_event in
        select row_number() over (order by min(c.n)) as ord,
            jsonb_agg(c.change order by c.change ->> 'fingerprint') as changes,
            bool_or(c.change ->> 'change' in ('fired', 'superseded', 'confirmed'))
                or (p_run_on = 'firing+resolved') as wants_run,
            bool_or(c.change ->> 'status' = 'firing') as firing,
            array_agg(c.change ->> 'fingerprint') as named,
            coalesce(array_agg(c.change ->> 'fingerprint') filter (
                where c.change ->> 'change' = 'resolved' and p_run_on = 'firing'), '{}') as ended
        from jsonb_array_elements(v_changes) with ordinality as c(change, n)
        group by case when p_unit = 'alert' then c.n end
    loop
        v_event_id := semel.uuid_at(v_now);
        v_run_id := case when v_event.wants_run and p_agent is not null then semel.uuid_at(v_real)
                         else (select (c ->> 'run_id')::uuid from jsonb_array_elements(v_event.changes) as c
                               where c ->> 'run_id' is not null limit 1) end;
        v_name := 'am1:' || encode(semel.parts_digest(variadic array[p_source] || array(
            select unnest(array[c ->> 'fingerprint', c ->> 'episode', c ->> 'status'])
            from jsonb_array_elements(v_event.changes) as c)), 'hex');
        v_key := semel.event_key(p_source, v_name);
        v_why := (select string_agg(format('alert %s %s', c ->> 'fingerprint', case c ->> 'change'
                    when 'fired' then 'fires' when 'superseded' then 'fires anew' when 'resolved' then 'is resolved'
                    when 'confirmed' then 'fired within the grace and is resolved'
                    else 'is resolved, its firing was never seen' end), ', ')
                  from (select c from jsonb_array_elements(v_event.changes) as c limit 5) as few);
        -- No ON CONFLICT: the episodes are new, so a row under this key is an error.
        insert into semel.dedupe (project_id, dedupe_key, source, channel_type, provider_event_id,
            event_id, run_id, first_seen_at, last_seen_at)
        values (p_project, v_key, p_source, 'alertmanager', v_name, v_event_id, v_run_id, v_now, v_now);
        -- By arrays: a join with the changes would read the whole fold of a source for each event.
        update semel.fold as f set event_id = v_event_id, event_key = v_key,
            run_id = case when f.fingerprint = any (v_event.ended) then f.run_id
                          when v_event.wants_run then v_run_id end
        where f.project_id = p_project and f.source = p_source and f.fingerprint = any (v_event.named);
        -- The runs of the episodes that ended are told.
        insert into semel.event_link (project_id, run_id, event_id, relation, content, linked_at)
        select p_project, (c.change ->> 'run_id')::uuid, v_event_id, min(c.change ->> 'change'),
            jsonb_agg(c.change -> 'alert'), v_now
        from jsonb_array_elements(v_event.changes) as c(change)
        where c.change ->> 'change' in ('resolved', 'superseded') and c.change ->> 'run_id' is not null
        group by (c.change ->> 'run_id')::uuid;
        if v_event.wants_run and v_run_id is not null then
            perform semel.run_create(p_project, array[v_run_id], array[p_agent],
                array[v_envelope || jsonb_build_object(
                    'status', case when v_event.firing then 'firing' else 'resolved' end,
                    'alerts', (select jsonb_agg(c -> 'alert') from jsonb_array_elements(v_event.changes) as c))],
                array[p_priority], array[null::int], array[p_source], array[v_event_id]);
        end if;
        insert into semel.delivery (project_id, delivery_id, received_at, source, channel_type, verdict, reason,
            provider_event_id, event_id, run_id, body_digest, headers)
        values (p_project, semel.uuid_at(v_real), v_now, p_source, 'alertmanager', 'new', v_why,
            v_name, v_event_id, v_run_id, v_digest, p_headers::jsonb);
        ord := v_event.ord;
        verdict := 'new';
        event_id := v_event_id;
        run_id := v_run_id;
        reason := v_why;
        return next;
    end loop;
end
$$;

-- alert_accept for an ingress: no lock is waited for longer than half a second, so that those who
-- wait for one alert hold no connection that others need. The caller sends it again.
create or replace function semel.alert_gather(
    p_project text, p_source text, p_agent text, p_envelope text, p_alerts text, p_body bytea,
    p_headers text default '{}', p_grace interval default '120 seconds', p_run_on text default 'firing',
    p_unit text default 'notification', p_priority int default 5, p_now timestamptz default null
) returns table (ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '500ms' as $$
begin
    perform semel.project_require(p_project);
    return query select * from semel.alert_accept(p_project, p_source, p_agent, p_envelope, p_alerts, p_body,
        p_headers, p_grace, p_run_on, p_unit, p_priority, p_now);
end
$$;
