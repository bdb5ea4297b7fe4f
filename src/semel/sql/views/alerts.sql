-- Alerts of Alertmanager as they are known, one row for each fingerprint of a source.
-- stale: its episode was closed because nobody spoke of it.
create or replace view semel.alerts as
select f.project_id, f.source, f.fingerprint, f.status,
    to_timestamp(f.starts_ns / 1000000000.0) as starts_at,
    case when f.ends_ns > 0 then to_timestamp(f.ends_ns / 1000000000.0) end as ends_at,
    f.status = 'resolved' and f.ends_ns = 0 as stale, f.event_id, f.run_id, f.changed_at, f.seen_at, f.late_at,
    f.missed_at, f.stale_count
from semel.fold as f;

-- The polls of Alertmanager's API, one row for each source that asks it. silent: since the last answer.
create or replace view semel.alert_polls as
select p.project_id, p.source, p.holder is not null and p.lease_until > clock_timestamp() as held, p.tried_at, p.polled_at,
    clock_timestamp() - p.polled_at as silent, p.fault, p.firing, p.found, p.ended
from semel.alert_poll as p;
