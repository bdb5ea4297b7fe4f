-- Operations: a mutation under a key, executed once; a later request is answered from its row.
--
--   nothing ──begin──> PROCESSING ──finish──> SUCCEEDED ──begin──> replay, for ever
--                        ^    └──fail, recover──> FAILED ─┐
--                        └──begin, attempts + 1───────────┴─ PENDING (another system's)
--
--   One transaction claims, does the caller's writes and finishes (atomic): nobody else sees its
--   PROCESSING. A committed one is a broken protocol, or recorded: claimed and committed before the
--   work, by a holder that beats. Neither is ever claimed again; a person judges it.
--
-- Fence: (project, request, attempt) and the claiming transaction's id; recorded: the holder's.
-- Locks: operation, then holder. A claim waits for another's uncommitted one no longer than p_wait,
--   and what a committed row already refuses waits for nothing.
-- Clock: p_now, or the server's. Only a holder's silence is judged by time; waiting is real time.

-- What *p_row* says to a request: claimed (it may be), replay, or why not. Internal.
create or replace function semel.operation_judge(
    p_project text, p_row semel.operation, p_event_type text, p_actor text, p_identities jsonb[], p_now timestamptz
) returns text
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_known  boolean := coalesce(p_row.payload = any (p_identities), false);
    v_digest text;
begin
    if p_row.target <> 'API' then
        return 'foreign';
    elsif p_row.event_type <> p_event_type then
        return 'procedure';
    elsif p_row.actor_user_id is distinct from p_actor then
        return 'actor';
    end if;
    if not v_known and jsonb_typeof(p_row.payload -> 'digest') = 'string' and p_row.payload ? 'version' then
        -- Under the row's own version and kind of digest; the caller may not have sent that one.
        v_digest := p_row.payload ->> 'digest';
        select bool_or(i ->> 'digest' = v_digest) into v_known from unnest(p_identities) as i
        where i -> 'version' = p_row.payload -> 'version'
          and regexp_replace(i ->> 'digest', '[^:]*$', '') = regexp_replace(v_digest, '[^:]*$', '');
        if v_known is null then
            return 'version';
        elsif not v_known then
            return 'mismatch';
        end if;
    end if;
    if p_row.status = 'PROCESSING' then
        return case when p_row.xact = pg_current_xact_id_if_assigned()
            or p_row.mode = 'recorded' and exists (
                select from semel.operation_holder as h
                where h.project_id = p_project and h.holder_id = p_row.holder and h.beat_at > p_now - interval '30 s')
            then 'in_flight' else 'unknown' end;
    elsif not v_known then
        -- Without an identity only a failure that left nothing is adopted.
        return case when p_row.status = 'FAILED' and p_row.payload = '{}' and p_row.reply_status is null
            and p_row.reply_body is null then 'claimed' else 'legacy' end;
    elsif p_row.status <> 'SUCCEEDED' then
        return 'claimed';
    end if;
    return case when p_row.gone or p_row.reply_status is null then 'gone' else 'replay' end;
end
$$;

-- Whether this identifies an operation. Internal, and open to be inlined: it fixes no search_path.
create or replace function semel.operation_sound(
    p_project text, p_request text, p_event_type text, p_actor text, p_identities jsonb[]
) returns boolean
language sql immutable parallel safe as $$
    select (p_project ~ '^[a-z0-9][a-z0-9_-]*$' and pg_catalog.octet_length(p_project) <= 64
        and pg_catalog.octet_length(p_request) between 1 and 512 and pg_catalog.octet_length(p_event_type) between 1 and 512
        and coalesce(pg_catalog.octet_length(p_actor) between 1 and 512, true)
        and pg_catalog.jsonb_typeof(p_identities[1] -> 'version') = 'number'
        and pg_catalog.strpos(p_identities[1] ->> 'digest', 'sha256:') > 0) is true
$$;

-- Say why it does not. Internal.
create or replace function semel.operation_refuse(
    p_project text, p_request text, p_event_type text, p_actor text
) returns text
language plpgsql immutable set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    if p_request is null or octet_length(p_request) not between 1 and 512 then
        raise exception using errcode = 'SMI06', message = 'an operation without an id, or with one above 512 bytes',
            hint = 'Send a shorter key.';
    elsif p_event_type is null or octet_length(p_event_type) not between 1 and 512 then
        raise exception using errcode = 'SMQ01', message = 'an operation without a procedure, or with a name above 512 bytes',
            hint = 'Name the operation in 1 to 512 bytes.';
    elsif octet_length(p_actor) not between 1 and 512 then
        raise exception using errcode = 'SMQ01', message = 'an actor of no bytes, or of more than 512',
            hint = 'Name who asks in 1 to 512 bytes; null is nobody.';
    end if;
    raise exception using errcode = 'SMQ01', message = 'an operation without the digest of its input',
        hint = 'Send {"version": 2, "digest": "sha256:..."}; semel.input_digest makes it.';
end
$$;

-- Claim an operation, or say what became of it. p_identities: the input's digest under each version
-- that a row may have; the first is kept. p_wait: for another's uncommitted claim, real time; null
-- or 0 answers at once. p_join: the caller's transaction may have written before.
-- outcome:
--   claimed    execute it, then finish or fail with this attempt and xid
--   replay     executed: the reply; nothing was written
--   mismatch, procedure, actor   the key was used with another input, procedure, actor
--   foreign    the key belongs to another system's row
--   version    the row has a digest of another version or key: send that one too (payload says which)
--   in_flight  being executed; nothing is known of its end
--   unknown    PROCESSING was committed, and nobody says that it goes on
--   gone       executed, its reply is not kept
--   legacy     the row has no digest to compare
--   written, isolation   this transaction has written already, is not READ COMMITTED
create or replace function semel.operation_begin(
    p_project text, p_request text, p_event_type text, p_actor text, p_identities jsonb[],
    p_wait interval default '5 s', p_join boolean default false, p_mode text default 'atomic',
    p_holder uuid default null, p_now timestamptz default null
) returns table (
    outcome text, attempts int, xid text, reply_status int, reply_headers jsonb, reply_body bytea, payload jsonb,
    error text, completed_at timestamptz
)
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '5 s' as $$
#variable_conflict use_column
declare
    v_began   timestamptz := clock_timestamp();
    v_now     timestamptz := coalesce(p_now, v_began);
    v_bound   text;
    v_again   boolean;
    v_row     semel.operation;
begin
    -- Each expression costs as much as a small function: the way of a new request has few.
    outcome := case
        when not semel.operation_sound(p_project, p_request, p_event_type, p_actor, p_identities)
            then semel.operation_refuse(p_project, p_request, p_event_type, p_actor)
        when (p_mode = 'atomic' and p_holder is null or p_mode = 'recorded' and p_holder is not null) is not true
            then 'modeless'
        when current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then 'isolation'
        when p_join is not true and pg_current_xact_id_if_assigned() is not null then 'written' end;
    while outcome is null loop
        select * into v_row from semel.operation as o where o.project_id = p_project and o.request_id = p_request;
        if found then
            outcome := semel.operation_judge(p_project, v_row, p_event_type, p_actor, p_identities, v_now);
            exit when outcome <> 'claimed';
        end if;
        begin
            -- The bound is the function's own, and so is taken back with it.
            if v_again or p_wait is distinct from '5 s' then
                v_bound := set_config('lock_timeout', greatest(5, date_part('epoch',
                    v_began + least(greatest(p_wait, '0'), '1 hour') - clock_timestamp()) * 1000)::int::text, true);
            end if;
            if outcome is null then
                insert into semel.operation (project_id, request_id, event_type, actor_user_id, payload, status, attempts,
                    mode, holder, xact, created_at, updated_at, processing_at)
                values (p_project, p_request, p_event_type, p_actor, p_identities[1], 'PROCESSING', 1,
                    p_mode, p_holder, pg_current_xact_id(), v_now, v_now, v_now)
                on conflict (project_id, request_id) do nothing;
            else
                -- As it was judged; what another made of it meanwhile is judged anew.
                update semel.operation as o set
                    status = 'PROCESSING', attempts = o.attempts + 1, mode = p_mode, holder = p_holder,
                    xact = pg_current_xact_id(), payload = case when o.payload = '{}' then p_identities[1] else o.payload end,
                    reply_status = null, reply_headers = null, reply_body = null, gone = false, error_code = null, error = null,
                    updated_at = v_now, processing_at = v_now, completed_at = null
                where o.project_id = p_project and o.request_id = p_request and o.status = v_row.status
                  and o.attempts = v_row.attempts and o.payload = v_row.payload and o.target = v_row.target
                  and o.event_type = p_event_type and o.actor_user_id is not distinct from p_actor;
            end if;
            v_again := not found;
            outcome := case when found then 'claimed' end;
        exception when lock_not_available or deadlock_detected then
            outcome := 'in_flight';
        end;
    end loop;
    if outcome = 'claimed' then
        attempts := coalesce(v_row.attempts, 0) + 1;
        xid := pg_current_xact_id()::text;
        if p_mode = 'recorded' then
            -- A claim is a sign of life.
            perform semel.operation_beat(p_project, p_holder, '', v_now);
        end if;
        return next;
        return;
    elsif outcome = 'modeless' then
        raise exception using errcode = 'SMQ01', message = format('%L with holder %L', left(p_mode, 80), p_holder),
            hint = 'An operation is atomic, or recorded by a holder.';
    elsif outcome = 'replay' then
        reply_status := v_row.reply_status;
        reply_headers := v_row.reply_headers;
        reply_body := v_row.reply_body;
        completed_at := v_row.completed_at;
    end if;
    attempts := v_row.attempts;
    payload := v_row.payload;
    error := v_row.error;
    return next;
end
$$;

-- SUCCEEDED with its reply, in the transaction that claimed it, or recorded by its holder.
-- Raises on anything else, since COMMIT may be on its way behind it. outcome: won, or already (a
-- holder says it again). p_gone: executed, reply not kept. p_journal: [{"topic": ..., "payload": ...}, ...].
create or replace function semel.operation_finish(
    p_project text, p_request text, p_attempt int, p_xid text, p_status int, p_headers jsonb, p_body bytea,
    p_gone boolean default false, p_journal jsonb default null, p_holder uuid default null, p_now timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    if p_status is null or p_status not between 100 and 599 or jsonb_typeof(coalesce(p_headers, '[]')) <> 'array' then
        raise exception using errcode = 'SMQ01', message = format('%s is no status of a reply, or its headers are no list', p_status),
            hint = 'A reply has a status of 100 to 599 and headers as [[name, value], ...].';
    end if;
    update semel.operation as o set
        status = 'SUCCEEDED', reply_status = p_status, gone = coalesce(p_gone, false),
        reply_headers = case when p_gone then null else coalesce(p_headers, '[]') end,
        reply_body = case when p_gone then null else coalesce(p_body, '') end,
        updated_at = v_now, completed_at = v_now
    where o.project_id = p_project and o.request_id = p_request and o.status = 'PROCESSING' and o.attempts = p_attempt
      and case when p_holder is null
          then o.mode = 'atomic' and o.xact = p_xid::xid8 and o.xact = pg_current_xact_id_if_assigned()
          else o.mode = 'recorded' and o.holder = p_holder end;
    if not found then
        perform from semel.operation as o
        where o.project_id = p_project and o.request_id = p_request and o.status = 'SUCCEEDED' and o.attempts = p_attempt
          and o.mode = 'recorded' and o.holder = p_holder;
        if found then
            return 'already';
        end if;
        perform semel.project_require(p_project);
        raise exception using errcode = 'SMI08',
            message = format('attempt %s of the operation is not this transaction''s to finish', p_attempt),
            hint = 'Its code must neither commit nor roll back the transaction that it is given.';
    end if;
    if p_journal is not null then
        perform semel.journal_append(p_project, p_request, null, p_journal, v_now);
    end if;
    return 'won';
end
$$;

-- operation_finish behind the caller's own deferred constraints, so that what they refuse is a
-- failure of the operation and not of COMMIT. With the caller's rights and search_path, which their
-- triggers expect; hence it names nothing unqualified.
create or replace function semel.operation_close(
    p_project text, p_request text, p_attempt int, p_xid text, p_status int, p_headers jsonb, p_body bytea,
    p_gone boolean default false, p_journal jsonb default null, p_holder uuid default null, p_now timestamptz default null
) returns text
language plpgsql as $$
begin
    set constraints all immediate;
    return semel.operation_finish(p_project, p_request, p_attempt, p_xid, p_status, p_headers, p_body, p_gone, p_journal,
        p_holder, p_now);
end
$$;

-- FAILED with its error, once the work is rolled back to its savepoint; or by its holder.
-- outcome: won, or lost (not this transaction's claim).
create or replace function semel.operation_fail(
    p_project text, p_request text, p_attempt int, p_xid text, p_code text, p_error text,
    p_holder uuid default null, p_now timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.operation as o set
        status = 'FAILED', error_code = left(p_code, 200), error = left(p_error, 8000), updated_at = v_now, completed_at = v_now
    where o.project_id = p_project and o.request_id = p_request and o.status = 'PROCESSING' and o.attempts = p_attempt
      and case when p_holder is null
          then o.mode = 'atomic' and o.xact = p_xid::xid8 and o.xact = pg_current_xact_id_if_assigned()
          else o.mode = 'recorded' and o.holder = p_holder end;
    return case when found then 'won' else 'lost' end;
end
$$;

-- What became of attempt p_attempt, whose COMMIT was sent in transaction p_xid and never answered;
-- FAILED where it came to nothing. It inserts first, since a lock alone would not see a claim that
-- is not committed yet. p_xid null: that transaction's fate cannot be asked for.
-- outcome:
--   recorded    it is FAILED, with this error or that of its own commit
--   succeeded   the operation has its reply
--   in_progress the transaction is still open; in_flight: another one executes the operation
--   other       the row shows another execution or identity, or PROCESSING; nothing was changed
create or replace function semel.operation_recover(
    p_project text, p_request text, p_event_type text, p_actor text, p_identities jsonb[], p_attempt int, p_xid text,
    p_code text, p_error text, p_wait interval default '5 s', p_now timestamptz default null
) returns table (
    outcome text, attempts int, reply_status int, reply_headers jsonb, reply_body bytea, payload jsonb, error text,
    completed_at timestamptz
)
language plpgsql security definer set search_path = pg_catalog set lock_timeout = '5 s' as $$
#variable_conflict use_column
declare
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_row     semel.operation;
    v_fate    text;
    v_outcome text;
begin
    if not semel.operation_sound(p_project, p_request, p_event_type, p_actor, p_identities) then
        perform semel.operation_refuse(p_project, p_request, p_event_type, p_actor);
    elsif current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception using errcode = 'SMI09', message = 'a transaction that is not READ COMMITTED cannot look again',
            hint = 'Recover in a transaction of its own, READ COMMITTED.';
    end if;
    begin
        v_fate := pg_xact_status(p_xid::xid8);
    exception when invalid_parameter_value then
        v_fate := null;  -- a number that this server has not reached: it never had that transaction
    end;
    begin
        perform set_config('lock_timeout',
            greatest(5, extract(epoch from least(coalesce(p_wait, '0'), '1 hour')) * 1000)::int::text, true);
        if v_fate is distinct from 'committed' then
            insert into semel.operation as o (project_id, request_id, event_type, actor_user_id, payload, status, attempts, xact,
                error_code, error, created_at, updated_at, processing_at, completed_at)
            values (p_project, p_request, p_event_type, p_actor, p_identities[1], 'FAILED', p_attempt, p_xid::xid8,
                left(p_code, 200), left(p_error, 8000), v_now, v_now, v_now, v_now)
            on conflict (project_id, request_id) do nothing
            returning * into v_row;
            v_outcome := case when found then 'recorded' end;
        end if;
        if v_outcome is null then
            select * into v_row from semel.operation as o
            where o.project_id = p_project and o.request_id = p_request for update;
        end if;
    exception when lock_not_available or deadlock_detected then
        v_outcome := case when v_fate = 'in progress' then 'in_progress' else 'in_flight' end;
    end;
    if v_outcome is null and v_row.request_id is not null then
        v_outcome := semel.operation_judge(p_project, v_row, p_event_type, p_actor, p_identities, v_now);
        if v_outcome = 'claimed' and v_row.status = 'FAILED' and v_row.attempts = p_attempt and v_row.xact = p_xid::xid8 then
            v_outcome := 'recorded';
        elsif v_outcome = 'claimed' and v_row.attempts = p_attempt - 1 and v_fate is distinct from 'committed' then
            update semel.operation as o set
                status = 'FAILED', attempts = p_attempt, mode = 'atomic', holder = null, xact = p_xid::xid8,
                payload = case when o.payload = '{}' then p_identities[1] else o.payload end,
                error_code = left(p_code, 200), error = left(p_error, 8000), updated_at = v_now, completed_at = v_now
            where o.project_id = p_project and o.request_id = p_request
            returning * into v_row;
            v_outcome := 'recorded';
        end if;
    end if;
    outcome := case v_outcome when 'replay' then 'succeeded' when 'gone' then 'succeeded'
        when 'recorded' then 'recorded' when 'in_flight' then 'in_flight' when 'in_progress' then 'in_progress'
        else 'other' end;
    attempts := v_row.attempts;
    payload := v_row.payload;
    if v_outcome = 'replay' then
        reply_status := v_row.reply_status;
        reply_headers := v_row.reply_headers;
        reply_body := v_row.reply_body;
    end if;
    error := v_row.error;
    completed_at := v_row.completed_at;
    return next;
end
$$;

-- A holder of recorded operations lives. Every 10 seconds while it holds one; silent for 30 it is
-- taken for dead. A claim calls it too, without a name.
create or replace function semel.operation_beat(
    p_project text, p_holder uuid, p_name text, p_now timestamptz default null
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    insert into semel.operation_holder as h (project_id, holder_id, name, started_at, beat_at)
    values (p_project, p_holder, left(coalesce(p_name, ''), 200), v_now, v_now)
    on conflict (project_id, holder_id) do update set
        beat_at = v_now, name = coalesce(nullif(excluded.name, ''), h.name)
    where h.beat_at < v_now - interval '5 s' or h.name = '' and excluded.name <> '';
end
$$;

-- A reply's body as JSON; null where it is none.
create or replace function semel.reply_json(p_body bytea) returns jsonb
language plpgsql immutable set search_path = pg_catalog as $$
begin
    return convert_from(p_body, 'UTF8')::jsonb;
exception when others then
    return null;
end
$$;
