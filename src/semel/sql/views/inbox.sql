-- Events, one row for each identity that is remembered.
create or replace view semel.events as
select d.project_id, d.event_id, d.source, d.channel_type, d.provider_event_id, d.run_id,
    d.first_seen_at, d.last_seen_at, d.hits, 'new'::text as verdict, d.dedupe_key
from semel.dedupe as d;

-- Deliveries, one row for each arrival of an event, with the reason of its verdict.
create or replace view semel.deliveries as
select d.project_id, d.delivery_id, d.received_at, d.source, d.channel_type, d.verdict, d.reason,
    d.provider_event_id, d.event_id, d.run_id, d.headers, encode(coalesce(d.body_digest, sha256(d.body)), 'hex') as body_digest,
    octet_length(coalesce(d.body, b.content)) as body_bytes
from semel.delivery as d
left join semel.body as b on b.project_id = d.project_id and b.body_digest = d.body_digest;

create or replace view semel.sources as
select s.project_id, s.source, s.channel_type, s.agent, s.seen_at, s.since, s.last_event_at from semel.source as s;

-- What became of the requests of each source, by five minutes, for a day; also of those that left nothing else.
create or replace view semel.source_outcomes as
select t.project_id, t.source, t.outcome, t.slot_at, t.count from semel.source_tally as t;
