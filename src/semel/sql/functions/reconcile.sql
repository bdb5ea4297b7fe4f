-- Reconcile: what no program may decide about an operation, a person judges.
--
--   PROCESSING, nobody holds it ──┐
--   PENDING, SUCCEEDED without a  ├─ judged ──> SUCCEEDED: its reply, or a tombstone
--   digest (another system's)  ───┘        └──> FAILED: the next same request executes it
--
--   Time proves nothing: what is listed is listed for its state, however young or old.
--
-- Fence: (attempts, updated_at) of the state that was judged.
-- Locks: operation, then nothing. A row that a transaction holds is not waited for.
-- Clock: p_now, or the server's; only a holder's silence is judged by it.

-- Whether requests can be compared with an operation's payload. Internal.
create or replace function semel.payload_compares(p_payload jsonb) returns boolean
language sql immutable set search_path = pg_catalog as $$
    select coalesce(jsonb_typeof(p_payload -> 'digest') = 'string', false) and p_payload ? 'version'
$$;

-- Why an operation needs a person: 'unknown' (PROCESSING, and no holder beats), 'legacy' (nothing
-- to compare a request with, so every one conflicts; but for a failure that left nothing, which the
-- next same request adopts); null: it needs none. Internal.
create or replace function semel.reconcile_kind(
    p_target text, p_status text, p_payload jsonb, p_replied boolean, p_held boolean
) returns text
language sql immutable set search_path = pg_catalog as $$
    select case
        when p_target <> 'API' then null
        when p_status = 'PROCESSING' then case when p_held then null else 'unknown' end
        when semel.payload_compares(p_payload) then null
        when p_status = 'FAILED' and p_payload = '{}' and not p_replied then null
        else 'legacy' end
$$;

-- Operations of a project that wait for a judgement, 'unknown' ones first, by id; from behind
-- (p_after_kind, p_after) on. One that was judged and has not changed since is left out. Reads the
-- project's operations through once: for a person.
create or replace function semel.reconcile_list(
    p_project text, p_kind text default null, p_after_kind text default '', p_after text default '',
    p_limit int default 50, p_alive interval default '30 seconds', p_now timestamptz default null
) returns table (
    kind text, request_id text, event_type text, actor_user_id text, status text, attempts int, mode text,
    holder uuid, holder_name text, holder_beat_at timestamptz, error text, imported_from text,
    created_at timestamptz, processing_at timestamptz, updated_at timestamptz
)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    return query
        select k.kind, o.request_id, o.event_type, o.actor_user_id, o.status, o.attempts, o.mode,
               o.holder, h.name, h.beat_at, o.error, o.imported_from, o.created_at, o.processing_at, o.updated_at
        from semel.operation as o
        left join semel.operation_holder as h on h.project_id = p_project and h.holder_id = o.holder
        cross join lateral (select semel.reconcile_kind(o.target, o.status, o.payload,
            o.reply_status is not null or o.reply_body is not null,
            o.mode = 'recorded' and coalesce(h.beat_at > v_now - p_alive, false))) as k(kind)
        -- Nearly every row is out of the question, and cheaply seen to be.
        where o.project_id = p_project and (o.status = 'PROCESSING' or not o.payload ? 'digest' or not o.payload ? 'version'
              or jsonb_typeof(o.payload -> 'digest') <> 'string')
          and k.kind is not null
          and (p_kind is null or k.kind = p_kind)
          and (p_after = '' or (k.kind = p_after_kind and o.request_id > p_after) or k.kind < p_after_kind)
          and not exists (select from semel.judgement as j where j.project_id = p_project
                          and j.request_id = o.request_id and j.judged_at = o.updated_at)
        order by k.kind desc, o.request_id limit p_limit;
end
$$;

-- Record p_by's judgement of the state (p_attempts, p_updated_at) of an operation, and make it so.
-- p_status: SUCCEEDED with the reply p_reply_* (p_body null: executed, its reply is not kept), or
-- FAILED: it had no effect, and the next same request executes it.
-- outcome:
--   won      so it is
--   unknown  no such operation is committed
--   foreign  another system's: never touched
--   refused  its state is none that a person judges; status says which
--   changed  it is no longer the state that was judged
--   alive    its holder beats: it is being executed
--   locked   a transaction that has not ended holds the row
create or replace function semel.reconcile_resolve(
    p_project text, p_request text, p_attempts int, p_updated_at timestamptz, p_status text, p_by text, p_reason text,
    p_reply_status int default 200, p_headers jsonb default null, p_body bytea default null,
    p_alive interval default '30 seconds', p_now timestamptz default null
) returns table (outcome text, status text, attempts int, updated_at timestamptz)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now  timestamptz;
    v_row  semel.operation;
    v_new  semel.operation;
    v_held boolean;
begin
    perform semel.project_require(p_project);
    if p_status is null or p_status not in ('SUCCEEDED', 'FAILED') then
        raise exception using errcode = 'SMQ01', message = format('%L is no judgement', left(coalesce(p_status, ''), 80)),
            hint = 'It is SUCCEEDED or FAILED.';
    elsif coalesce(btrim(p_reason), '') = '' or octet_length(p_reason) > 8000
        or coalesce(btrim(p_by), '') = '' or octet_length(p_by) > 800 then
        raise exception using errcode = 'SMQ01', message = 'a judgement without a reason, or without who judged',
            hint = 'A reason is 1 to 8000 bytes, a name 1 to 800.';
    end if;
    select * into v_row from semel.operation as o
    where o.project_id = p_project and o.request_id = p_request for update skip locked;
    if not found then
        outcome := case when exists (select from semel.operation as o
            where o.project_id = p_project and o.request_id = p_request) then 'locked' else 'unknown' end;
        return next;
        return;
    end if;
    v_now := coalesce(p_now, clock_timestamp());
    v_held := v_row.mode = 'recorded' and v_row.status = 'PROCESSING' and exists (
        select from semel.operation_holder as h where h.project_id = p_project
        and h.holder_id = v_row.holder and h.beat_at > v_now - p_alive);
    outcome := case
        when v_row.target <> 'API' then 'foreign'
        when v_row.attempts is distinct from p_attempts or v_row.updated_at is distinct from p_updated_at then 'changed'
        when v_held then 'alive'
        when semel.reconcile_kind(v_row.target, v_row.status, v_row.payload,
            v_row.reply_status is not null or v_row.reply_body is not null, v_held) is null then 'refused'
        else 'won' end;
    if outcome = 'won' then
        update semel.operation as o set
            status = p_status, holder = null, updated_at = v_now, completed_at = v_now,
            -- Without anything to compare with, the next same request adopts the failure.
            payload = case when p_status = 'FAILED' and not semel.payload_compares(o.payload) then '{}' else o.payload end,
            gone = p_status = 'SUCCEEDED' and p_body is null,
            reply_status = case when p_status = 'SUCCEEDED' then p_reply_status end,
            reply_headers = case when p_status = 'SUCCEEDED' and p_body is not null then coalesce(p_headers, '[]') end,
            reply_body = case when p_status = 'SUCCEEDED' then p_body end,
            error_code = case when p_status = 'FAILED' then 'E-IDEMPOTENT-004' end,
            error = case when p_status = 'FAILED' then 'judged: ' || p_reason end
        where o.project_id = p_project and o.request_id = p_request
        returning * into v_new;
        insert into semel.judgement (project_id, judgement_id, request_id, judged_at, judged_by, reason, before, after)
        values (p_project, semel.uuid_at(v_now), p_request, v_now, btrim(p_by), btrim(p_reason),
                to_jsonb(v_row) - '{project_id,request_id,reply_body,reply_headers}'::text[],
                to_jsonb(v_new) - '{project_id,request_id,reply_body,reply_headers}'::text[]);
        v_row := v_new;
    end if;
    status := v_row.status;
    attempts := v_row.attempts;
    updated_at := v_row.updated_at;
    return next;
end
$$;
