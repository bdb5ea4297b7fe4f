-- Drain: what of the ledger is still being executed, before new code comes.
--
-- The other half of the question, transactions that have not committed what they execute, is asked
-- of PostgreSQL's locks; no row shows them.
--
-- Locks: none.
-- Clock: p_now, or the server's.

-- Projects with operations that are PROCESSING, the third read across projects. atomic: durable
-- although their transaction would have made them SUCCEEDED or FAILED, or another system's;
-- recorded: durable by design; held: of these, those whose holder gave a sign of life in p_alive.
create or replace function semel.drain_count(
    p_alive interval default '30 seconds', p_now timestamptz default null
) returns table (project_id text, atomic bigint, recorded bigint, held bigint)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    return query
        select o.project_id, count(*) filter (where o.mode = 'atomic'), count(*) filter (where o.mode = 'recorded'),
               count(*) filter (where h.beat_at > v_now - p_alive)
        from semel.operation as o
        left join semel.operation_holder as h
            on h.project_id = o.project_id and h.holder_id = o.holder and o.mode = 'recorded'
        where o.status = 'PROCESSING' and o.target = 'API'
        group by o.project_id order by o.project_id;
end
$$;
