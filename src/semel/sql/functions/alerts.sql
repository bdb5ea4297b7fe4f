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
--   firing    ──firing, long after its last event, its run has ended──> firing   new, where reminders are
--   all else: duplicate (the same bytes, or nothing open) or reminder (an open episode again)
--
-- The judge is notification_fold (notifications.sql), for one notification as for many.
--
-- Fence: the fold row's lock. Its verdict is final; the dedupe row under it can only be new.
-- Locks: fold by fingerprint, then dedupe, then run.
-- Clock: p_now or the server's for the grace and for sightings; a run's times are the server's.
-- Source of the rules: captured traffic of Alertmanager 0.25; see docs/decisions/.

-- Accept one notification. p_alerts: JSON array of {fingerprint, status, starts_ns, ends_ns,
-- alert}. The run's input is p_envelope (an object) with `alerts` narrowed to what changed.
-- p_run_on: firing, or firing+resolved. p_unit: notification, or alert (an event for each).
-- p_reminder: so long after its last event, an open episode without a live run has one more when it is
-- told of again; null: never.
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
    p_now      timestamptz default null,
    p_reminder interval default null
) returns table (ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return query
        select f.ord, f.verdict, f.event_id, f.run_id, f.reason
        from semel.notification_fold(
            p_project,
            jsonb_build_array(jsonb_build_object(
                'source', p_source, 'agent', p_agent, 'envelope', p_envelope::jsonb, 'alerts', p_alerts::jsonb,
                'headers', p_headers::jsonb, 'grace', p_grace, 'run_on', p_run_on, 'unit', p_unit,
                'priority', p_priority, 'reminder', p_reminder))::text,
            array[p_body], p_now) as f
        order by f.ord;
end
$$;

-- alert_accept for an ingress: no lock is waited for longer than half a second, so that those who
-- wait for one alert hold no connection that others need. The caller sends it again.
create or replace function semel.alert_gather(
    p_project text, p_source text, p_agent text, p_envelope text, p_alerts text, p_body bytea,
    p_headers text default '{}', p_grace interval default '120 seconds', p_run_on text default 'firing',
    p_unit text default 'notification', p_priority int default 5, p_now timestamptz default null,
    p_reminder interval default null
) returns table (ord int, verdict text, event_id uuid, run_id uuid, reason text)
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '500ms' as $$
begin
    perform semel.project_require(p_project);
    return query select * from semel.alert_accept(p_project, p_source, p_agent, p_envelope, p_alerts, p_body,
        p_headers, p_grace, p_run_on, p_unit, p_priority, p_now, p_reminder);
end
$$;
