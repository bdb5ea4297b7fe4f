-- Sources: what became of their requests, counted in memory by each ingress and told here in batches.
--
-- Fence: none; counts are added up, a moment only goes forward.
-- Locks: source_tally by (source, outcome), then source by name; old tallies that nobody holds.
-- Clock: p_now, or the server's.

-- Add counts to the five minutes that are now, and move the last event of each source that had an
-- authentic one. What is older than a day goes. The three arrays have one length; an outcome of a
-- source may stand in them twice.
create or replace function semel.source_observe(
    p_project text, p_sources text[], p_outcomes text[], p_counts bigint[], p_now timestamptz default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    insert into semel.source_tally as t (project_id, slot_at, source, outcome, count)
    select p_project, date_bin('5 minutes', v_now, 'epoch'), told.source, told.outcome, sum(told.count)
    from unnest(p_sources, p_outcomes, p_counts) as told(source, outcome, count)
    group by told.source, told.outcome order by told.source, told.outcome
    on conflict on constraint source_tally_pkey do update set count = t.count + excluded.count;

    update semel.source as s set last_event_at = greatest(s.last_event_at, v_now)
    from (select k.source from semel.source as k
          where k.project_id = p_project and k.source in (
              select told.source from unnest(p_sources, p_outcomes) as told(source, outcome)
              where told.outcome not in ('refused', 'forbidden', 'limited', 'malformed', 'failed'))
          order by k.source for update) as heard
    where s.project_id = p_project and s.source = heard.source;

    with old as materialized (
        select t.slot_at, t.source, t.outcome from semel.source_tally as t
        where t.project_id = p_project and t.slot_at < v_now - interval '1 day'
        limit 1000 for update skip locked
    )
    delete from semel.source_tally as t using old as o
    where t.project_id = p_project and t.slot_at = o.slot_at and t.source = o.source and t.outcome = o.outcome;
end
$$;
