-- The journal: what transactions say, in the order of their commits, to consumers that miss nothing.
--
--   journal_append ──COMMIT──> pending ──journal_number──> entry (seq) ──journal_expire──> gone
--                                                            │
--   journal_take: entries and the cursor's move in the consumer's own transaction, exactly once
--   journal_lease ──> entries, his until the lease ends ──journal_commit──> the cursor moves: at least once
--   journal_read: from a place that the reader keeps himself
--
-- Order: entries get their seq after the commit, all that are visible at once, by finished_at. Of two
--   transactions that wrote one row the later one sees the earlier one's entries, or their seq, and
--   gives its own a later finished_at, whatever the clock does. A transaction that commits late gets a
--   later seq; nobody waits for it. Nothing appears below a seq that a reader has seen.
-- Fence: a cursor is moved by whoever has its row locked, or by the holder of its lease.
-- Locks: the project's row of the journal, then a cursor; both are skipped where they are locked.
-- Clock: p_now, or the server's.

-- Say p_entries, [{"topic": …, "payload": …}, …], in the caller's transaction; answers how many. After
-- the writes that they tell of: their order is that of the calls. At most 1000, each of at most 1 MiB
-- as PostgreSQL writes it; a topic has 1 to 255 bytes.
create or replace function semel.journal_append(
    p_project text, p_request text, p_run uuid, p_entries jsonb, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_at   timestamptz := coalesce(p_now, clock_timestamp());
    v_seen timestamptz;
begin
    perform semel.project_require(p_project);
    if p_entries is null or jsonb_typeof(p_entries) <> 'array' or jsonb_array_length(p_entries) > 1000
       or exists (select from jsonb_array_elements(p_entries) as e(v)
                  where coalesce(octet_length(e.v ->> 'topic'), 0) not between 1 and 255
                     or jsonb_typeof(e.v -> 'topic') <> 'string') then
        raise exception using errcode = 'SMQ01', message = 'no entries of a journal: an entry without a topic, or too many of them',
            hint = 'Send an array of at most 1000 objects, each with a topic of 1 to 255 bytes and a payload.';
    end if;
    if exists (select from jsonb_array_elements(p_entries) as e(v) where octet_length((e.v -> 'payload')::text) > 1048576) then
        raise exception using errcode = 'SMQ02', message = 'an entry of the journal is above 1 MiB',
            hint = 'Keep what is large elsewhere, and say where.';
    end if;
    -- Behind what it can see and has no seq yet: a row that it wrote after another's commit comes
    -- later, also by a clock that has stepped back. Mostly nothing is there to be read.
    select max(o.finished_at) into v_seen from semel.journal_pending as o
    where o.project_id = p_project and o.finished_at >= v_at;
    v_at := coalesce(v_seen + interval '1 microsecond', v_at);
    insert into semel.journal_pending (project_id, finished_at, entry_id, topic, payload, request_id, run_id)
    select p_project, v_at + (e.n - 1) * interval '1 microsecond', semel.uuid_at(v_at), e.v ->> 'topic',
        coalesce(e.v -> 'payload', 'null'), p_request, p_run
    from jsonb_array_elements(p_entries) with ordinality as e(v, n);
    return jsonb_array_length(p_entries);
end
$$;

-- Give at most p_limit entries that are committed their seq. Answers how many; null where another does
-- just that. In a transaction of its own: until its end nobody else numbers.
create or replace function semel.journal_number(p_project text, p_limit int default 10000, p_now timestamptz default null)
returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_next  bigint;
    v_count int;
begin
    perform semel.project_require(p_project);
    if not exists (select from semel.journal_pending as o where o.project_id = p_project) then
        return 0;
    end if;
    if not exists (select from semel.journal_project as p where p.project_id = p_project) then
        insert into semel.journal_project (project_id) values (p_project) on conflict on constraint journal_project_pkey do nothing;
    end if;
    select p.next_seq into v_next from semel.journal_project as p
    where p.project_id = p_project for no key update skip locked;
    if not found then
        return null;
    end if;
    -- Named by their place: nobody else touches them, and a join may be planned as if there were few.
    with taken as (
        delete from semel.journal_pending as o
        where o.project_id = p_project and o.ctid = any (array(
            select n.ctid from semel.journal_pending as n
            where n.project_id = p_project
            order by n.finished_at, n.entry_id limit p_limit))
        returning o.entry_id, o.topic, o.payload, o.request_id, o.run_id, o.finished_at
    ), put as (
        insert into semel.journal_entry (project_id, seq, entry_id, topic, payload, request_id, run_id, finished_at, numbered_at)
        select p_project, v_next - 1 + row_number() over (order by t.finished_at, t.entry_id), t.entry_id, t.topic,
            t.payload, t.request_id, t.run_id, t.finished_at, v_now
        from taken as t
        returning 1
    )
    select count(*) into v_count from put;
    update semel.journal_project as p set next_seq = v_next + v_count where p.project_id = p_project;
    return v_count;
end
$$;

-- At most p_limit entries behind p_after, of p_topics or of any. The first row has no entry: outcome
-- read, and upto, how far the rows that follow have come; a reader goes on from there. Or passed: entries
-- behind p_after are gone, or p_after is beyond the end, as after a failover that lost some. One call looks
-- at no more than 10000 entries; while upto is below the end there may be more.
create or replace function semel.journal_read(
    p_project text, p_after bigint, p_topics text[] default null, p_limit int default 100
) returns table (
    outcome text, after bigint, upto bigint, seq bigint, entry_id uuid, topic text, payload text,
    request_id text, run_id uuid, finished_at timestamptz
)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_after bigint := coalesce(p_after, 0);
    v_high  bigint;
    v_gone  bigint;
begin
    perform semel.project_require(p_project);
    if p_limit is null or p_limit not between 1 and 1000 then
        raise exception using errcode = 'SMQ01', message = 'a limit of a journal is 1 to 1000',
            hint = 'Ask again for what follows.';
    end if;
    select p.next_seq - 1, p.dropped_seq into v_high, v_gone from semel.journal_project as p where p.project_id = p_project;
    v_high := coalesce(v_high, 0);
    if v_after < coalesce(v_gone, 0) or v_after > v_high then
        return query select 'passed', v_after, v_gone, null::bigint, null::uuid, null, null, null, null::uuid, null::timestamptz;
        return;
    end if;
    v_high := least(v_high, v_after + 10000);
    return query
        with page as materialized (
            select e.seq, e.entry_id, e.topic, e.payload::text as payload, e.request_id, e.run_id, e.finished_at
            from semel.journal_entry as e
            where e.project_id = p_project and e.seq > v_after and e.seq <= v_high
              and (p_topics is null or e.topic = any (p_topics))
            order by e.seq limit p_limit
        )
        select 'read', v_after, case when (select count(*) from page) < p_limit then v_high else (select max(seq) from page) end,
            null::bigint, null::uuid, null, null, null, null::uuid, null::timestamptz
        union all
        (select 'read', v_after, v_high, e.seq, e.entry_id, e.topic, e.payload, e.request_id, e.run_id, e.finished_at
         from page as e order by e.seq);
end
$$;

-- Make p_consumer known, from the oldest entry that is kept or from the newest; answers its place. One
-- that is known stays where it is.
create or replace function semel.journal_join(
    p_project text, p_consumer text, p_from text default 'oldest', p_now timestamptz default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_seq bigint;
begin
    perform semel.project_require(p_project);
    if p_consumer is null or p_consumer !~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$' or p_from is null or p_from not in ('oldest', 'newest') then
        raise exception using errcode = 'SMQ01', message = format('%L is no consumer, or %L no place to begin', left(p_consumer, 150), left(p_from, 80)),
            hint = 'A consumer is 1 to 128 of A-Z, a-z, 0-9, _, ., : and -, and begins at the oldest or the newest entry.';
    end if;
    insert into semel.journal_cursor (project_id, consumer, seq, created_at, moved_at)
    values (p_project, p_consumer, coalesce((
        select case p_from when 'oldest' then p.dropped_seq else p.next_seq - 1 end
        from semel.journal_project as p where p.project_id = p_project), 0), v_now, v_now)
    on conflict on constraint journal_cursor_pkey do nothing;
    select c.seq into v_seq from semel.journal_cursor as c where c.project_id = p_project and c.consumer = p_consumer;
    return v_seq;
end
$$;

-- Whether there is something for p_consumer to look at, though perhaps not of its topics. Writes nothing.
create or replace function semel.journal_waits(p_project text, p_consumer text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return exists (select from semel.journal_pending as o where o.project_id = p_project)
        or not exists (select from semel.journal_cursor as c where c.project_id = p_project and c.consumer = p_consumer
                       and c.seq = coalesce((select p.next_seq - 1 from semel.journal_project as p where p.project_id = p_project), 0));
end
$$;

-- Entries for p_consumer, and its cursor behind them, in the caller's transaction: with his rows, or not
-- at all. As journal_read; or the one row busy (another instance has it) or unknown (journal_join first).
create or replace function semel.journal_take(
    p_project text, p_consumer text, p_topics text[] default null, p_limit int default 100, p_now timestamptz default null
) returns table (
    outcome text, after bigint, upto bigint, seq bigint, entry_id uuid, topic text, payload text,
    request_id text, run_id uuid, finished_at timestamptz
)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now    timestamptz;
    v_cursor semel.journal_cursor;
begin
    perform semel.project_require(p_project);
    select c.* into v_cursor from semel.journal_cursor as c
    where c.project_id = p_project and c.consumer = p_consumer for update skip locked;
    v_now := coalesce(p_now, clock_timestamp());
    if not found or v_cursor.lease_until > v_now then
        return query select semel.journal_absence(p_project, p_consumer), null::bigint, null::bigint, null::bigint,
            null::uuid, null, null, null, null::uuid, null::timestamptz;
        return;
    end if;
    return query
        with page as materialized (
            select r.* from semel.journal_read(p_project, v_cursor.seq, p_topics, p_limit) as r
        ), moved as (
            update semel.journal_cursor as c set seq = r.upto, holder = null, lease_until = null, moved_at = v_now
            from page as r
            where c.project_id = p_project and c.consumer = p_consumer
              and r.seq is null and r.outcome = 'read' and r.upto > c.seq
        )
        select r.* from page as r order by r.seq nulls first;
end
$$;

-- Entries for p_consumer that are p_holder's until p_lease from now; then journal_commit. As journal_take,
-- but the cursor stays, unless there was nothing of its topics.
create or replace function semel.journal_lease(
    p_project text, p_consumer text, p_holder uuid, p_lease interval default '1 minute', p_topics text[] default null,
    p_limit int default 100, p_now timestamptz default null
) returns table (
    outcome text, after bigint, upto bigint, seq bigint, entry_id uuid, topic text, payload text,
    request_id text, run_id uuid, finished_at timestamptz
)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now    timestamptz;
    v_cursor semel.journal_cursor;
begin
    perform semel.project_require(p_project);
    if p_holder is null or p_lease is null or p_lease not between '100 milliseconds' and '1 hour' then
        raise exception using errcode = 'SMQ01', message = 'a lease of nobody, or one that is not 100 ms to 1 h',
            hint = 'Give the instance a uuid of its own, and a lease that is longer than a batch takes.';
    end if;
    select c.* into v_cursor from semel.journal_cursor as c
    where c.project_id = p_project and c.consumer = p_consumer for update skip locked;
    v_now := coalesce(p_now, clock_timestamp());
    if not found or (v_cursor.lease_until > v_now and v_cursor.holder <> p_holder) then
        return query select semel.journal_absence(p_project, p_consumer), null::bigint, null::bigint, null::bigint,
            null::uuid, null, null, null, null::uuid, null::timestamptz;
        return;
    end if;
    return query
        with page as materialized (
            select r.* from semel.journal_read(p_project, v_cursor.seq, p_topics, p_limit) as r
        ), held as (
            update semel.journal_cursor as c set holder = p_holder, lease_until = v_now + p_lease
            where c.project_id = p_project and c.consumer = p_consumer
              and exists (select from page as r where r.seq is not null)
        ), moved as (
            update semel.journal_cursor as c set seq = r.upto, holder = null, lease_until = null, moved_at = v_now
            from page as r
            where c.project_id = p_project and c.consumer = p_consumer
              and r.outcome = 'read' and r.upto > c.seq and not exists (select from page as o where o.seq is not null)
        )
        select r.* from page as r order by r.seq nulls first;
end
$$;

-- Why there is no cursor to be had: busy or unknown. Internal.
create or replace function semel.journal_absence(p_project text, p_consumer text) returns text
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    return case when exists (select from semel.journal_cursor as c where c.project_id = p_project and c.consumer = p_consumer)
        then 'busy' else 'unknown' end;
end
$$;

-- Done with all up to p_upto: the cursor moves there and is free for any instance. With its own place
-- it is only set free. outcome: won, already (this very commit, sent again), lost (the lease ended and
-- another went on, or an operator moved the cursor) or unknown.
create or replace function semel.journal_commit(
    p_project text, p_consumer text, p_holder uuid, p_upto bigint, p_now timestamptz default null
) returns table (outcome text, seq bigint)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_cursor semel.journal_cursor;
begin
    perform semel.project_require(p_project);
    select c.* into v_cursor from semel.journal_cursor as c
    where c.project_id = p_project and c.consumer = p_consumer for update;
    if not found then
        return query select 'unknown', null::bigint;
    elsif v_cursor.holder = p_holder and p_upto >= v_cursor.seq
          and p_upto < (select p.next_seq from semel.journal_project as p where p.project_id = p_project) then
        update semel.journal_cursor as c set seq = p_upto, holder = null, lease_until = null, moved_at = v_now
        where c.project_id = p_project and c.consumer = p_consumer;
        return query select 'won', p_upto;
    else
        return query select case when v_cursor.holder is null and v_cursor.seq = p_upto then 'already' else 'lost' end, v_cursor.seq;
    end if;
end
$$;

-- Move a cursor to p_to, or as near as entries are kept: 0 is the oldest. Whoever holds it has lost it.
-- outcome: won, busy (a transaction is just taking from it) or unknown; and where it is.
create or replace function semel.journal_seek(p_project text, p_consumer text, p_to bigint, p_now timestamptz default null)
returns table (outcome text, seq bigint)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_cursor semel.journal_cursor;
    v_to     bigint;
begin
    perform semel.project_require(p_project);
    select c.* into v_cursor from semel.journal_cursor as c
    where c.project_id = p_project and c.consumer = p_consumer for update skip locked;
    if not found then
        return query select semel.journal_absence(p_project, p_consumer), null::bigint;
        return;
    end if;
    select greatest(p.dropped_seq, least(p.next_seq - 1, p_to)) into v_to from semel.journal_project as p where p.project_id = p_project;
    v_to := coalesce(v_to, 0);
    update semel.journal_cursor as c set seq = v_to, holder = null, lease_until = null, moved_at = v_now
    where c.project_id = p_project and c.consumer = p_consumer;
    return query select 'won', v_to;
end
$$;

-- Forget a consumer: won or unknown. One of the same name begins anew.
create or replace function semel.journal_forget(p_project text, p_consumer text) returns table (outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    delete from semel.journal_cursor as c where c.project_id = p_project and c.consumer = p_consumer;
    return query select case when found then 'won' else 'unknown' end;
end
$$;

-- Drop entries that could be read for p_keep: the oldest, p_limit at most, none that is younger, none
-- without a seq. Answers how many. A cursor that stands before them is told so, by passed.
create or replace function semel.journal_expire(
    p_project text, p_keep interval, p_limit int default 1000, p_now timestamptz default null
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_gone bigint;
    v_upto bigint;
begin
    perform semel.project_require(p_project);
    select p.dropped_seq into v_gone from semel.journal_project as p
    where p.project_id = p_project for no key update skip locked;
    select coalesce(min(h.seq) filter (where h.numbered_at > v_now - p_keep) - 1, max(h.seq)) into v_upto
    from (select e.seq, e.numbered_at from semel.journal_entry as e
          where e.project_id = p_project and e.seq > v_gone order by e.seq limit p_limit) as h;
    if v_upto is null or v_upto <= v_gone then
        return 0;
    end if;
    delete from semel.journal_entry as e where e.project_id = p_project and e.seq > v_gone and e.seq <= v_upto;
    update semel.journal_project as p set dropped_seq = v_upto where p.project_id = p_project;
    return v_upto - v_gone;
end
$$;
