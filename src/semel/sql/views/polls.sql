-- Pollers, one row for each bot that was ever polled; live: somebody holds its lease now.
create or replace view semel.polls as
select p.project_id, p.bot, p.source, p.state, p.said, p.since,
    p.holder is not null and p.lease_until > clock_timestamp() as live, p.place, p.fence, p.lease_until,
    p.next_id, p.moved_at, p.failures, p.retry_at, p.updates, p.missing, p.missing_from, p.missing_upto,
    p.missing_at, p.restarts
from semel.poll as p;
