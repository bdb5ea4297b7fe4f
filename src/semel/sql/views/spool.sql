-- The spools that ingresses said they have, one row for each source they serve.
create or replace view semel.spools as
select s.project_id, s.source, s.spool_id, s.place, s.seen_at from semel.spool as s;
