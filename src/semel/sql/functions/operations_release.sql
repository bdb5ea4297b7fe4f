-- Operations: what a holder of recorded mode hands back without an outcome.
--
--   PROCESSING ──untouched──> PENDING      nothing was done yet: the claim never happened
--   PROCESSING ──unknown────> PROCESSING   without a holder: for a person to judge, at once
--
-- Fence: (project, request, attempt) and the holder's id. Locks: operation. Clock: p_now, or the
-- server's; nothing is judged by it.

-- p_outcome: untouched or unknown, as above. Answers won, or lost: it is not this holder's any more.
create or replace function semel.operation_release(
    p_project text, p_request text, p_attempt int, p_holder uuid, p_outcome text, p_now timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    if p_outcome is null or p_outcome not in ('untouched', 'unknown') then
        raise exception using errcode = 'SMQ01', message = format('%L is nothing to release an operation with', left(p_outcome, 80)),
            hint = 'It is untouched or unknown.';
    end if;
    update semel.operation as o set
        status = case p_outcome when 'untouched' then 'PENDING' else o.status end,
        attempts = case p_outcome when 'untouched' then o.attempts - 1 else o.attempts end,
        mode = case p_outcome when 'untouched' then 'atomic' else o.mode end,
        holder = null, updated_at = v_now
    where o.project_id = p_project and o.request_id = p_request and o.status = 'PROCESSING' and o.attempts = p_attempt
      and o.mode = 'recorded' and o.holder = p_holder;
    return case when found then 'won' else 'lost' end;
end
$$;
