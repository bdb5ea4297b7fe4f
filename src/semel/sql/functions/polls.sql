-- Polls: of all processes that could ask for a bot's events, one does, and what it brought is
-- committed together with how far it has come.
--
--   nobody's ──poll_take──> starting ──first answer (poll_keep)──> polling ──poll_commit──> polling
--      ^                       │                                      │
--      ├──────poll_leave───────┴─ stopped: nobody's at once ──────────┤
--      ├──────poll_leave, the server refuses: nobody's, and not before retry_at
--      └──────lease_until passes: whoever takes it next has a larger fence
--
-- Fence: (project, bot, holder, fence). A write of who lost the lease changes nothing and answers lost.
--   poll_commit names the next_id that its caller knew, too: one whose COMMIT was not answered commits nothing
--   on top of it, but learns how far it has come.
-- Across projects a bot is polled once as well, without a lock over them: who has taken the lease,
--   committed, looks in the view for another live one of the bot, and leaves again where there is one. Of
--   two, at least the one who looked last sees the other.
-- Locks: poll, then those of event_accept.
-- Clock: p_now, or the server's. A lease ends by it; what asks another's server may believe in it only as
--   long as it was promised when the question was sent.

-- Take the lease of p_bot for p_source. outcome taken; held, by another for as long as remaining; or
-- waits, since nobody is to ask so soon. ask_id is the id to ask from: null where the server is to
-- begin with the oldest, since its ids begin anywhere after a week of silence.
create or replace function semel.poll_take(
    p_project text, p_bot text, p_source text, p_holder uuid, p_place text, p_lease interval default '30 seconds',
    p_now timestamptz default null
) returns table (
    outcome text, fence bigint, next_id bigint, ask_id bigint, source text, place text, remaining interval,
    state text, said text, failures int, updates bigint, missing bigint, restarts bigint
)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_poll semel.poll;
begin
    perform semel.project_require(p_project);
    if not exists (select from semel.poll as p where p.project_id = p_project and p.bot = p_bot) then
        insert into semel.poll (project_id, bot, source, since) values (p_project, p_bot, p_source, v_now)
        on conflict on constraint poll_pkey do nothing;
    end if;
    select * into v_poll from semel.poll as p where p.project_id = p_project and p.bot = p_bot for update skip locked;
    if not found then  -- its holder is just writing
        return query select 'held', null::bigint, null::bigint, null::bigint, p.source, p.place, interval '1 second',
            p.state, p.said, p.failures, p.updates, p.missing, p.restarts
        from semel.poll as p where p.project_id = p_project and p.bot = p_bot;
        return;
    end if;
    if v_poll.holder <> p_holder and v_poll.lease_until > v_now then
        outcome := 'held';
        remaining := v_poll.lease_until - v_now;
    elsif v_poll.retry_at > v_now then
        outcome := 'waits';
        remaining := v_poll.retry_at - v_now;
    else
        outcome := 'taken';
        update semel.poll as p set
            source = p_source, holder = p_holder, place = left(p_place, 250), fence = p.fence + 1,
            lease_until = v_now + p_lease, retry_at = null,
            state = case when p.failures > 0 then p.state else 'starting' end,
            since = case when p.failures > 0 then p.since else v_now end
        where p.project_id = p_project and p.bot = p_bot
        returning p.* into v_poll;
        remaining := p_lease;
    end if;
    return query select outcome, v_poll.fence, v_poll.next_id,
        case when v_poll.moved_at > v_now - interval '6 days' then v_poll.next_id end,
        v_poll.source, v_poll.place, remaining, v_poll.state, v_poll.said, v_poll.failures, v_poll.updates,
        v_poll.missing, v_poll.restarts;
end
$$;

-- Hold the lease for another p_lease. p_answered: the server has answered, so whatever was wrong is over.
-- outcome kept or lost; ask_id as of poll_take.
create or replace function semel.poll_keep(
    p_project text, p_bot text, p_holder uuid, p_fence bigint, p_lease interval default '30 seconds',
    p_answered boolean default false, p_now timestamptz default null
) returns table (outcome text, next_id bigint, ask_id bigint)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_poll semel.poll;
begin
    perform semel.project_require(p_project);
    update semel.poll as p set
        lease_until = v_now + p_lease,
        since = case when p_answered and p.state <> 'polling' then v_now else p.since end,
        state = case when p_answered then 'polling' else p.state end,
        said = case when p_answered then '' else p.said end,
        failures = case when p_answered then 0 else p.failures end
    where p.project_id = p_project and p.bot = p_bot and p.holder = p_holder and p.fence = p_fence
    returning p.* into v_poll;
    if not found then
        return query select 'lost', null::bigint, null::bigint;
        return;
    end if;
    return query select 'kept', v_poll.next_id,
        case when v_poll.moved_at > v_now - interval '6 days' then v_poll.next_id end;
end
$$;

-- Commit what came: p_events and p_bodies as event_accept takes them, p_ids their ids at the server, one
-- each, p_next the id to ask from now on. p_seen is the next_id that was known when they were asked for. The
-- first row has no event: outcome committed, lost, or stale where p_seen is not what is committed,
-- and then nothing is. p_ids are at most 256, and p_next is above all of them.
-- Ids between p_seen and them that never came are counted as missing, unless their sequence began anew: after six
-- quiet days, below p_seen, or further on than a server keeps events.
create or replace function semel.poll_commit(
    p_project text, p_bot text, p_holder uuid, p_fence bigint, p_seen bigint, p_next bigint, p_ids bigint[],
    p_events text, p_bodies bytea[], p_lease interval default '30 seconds', p_memory interval default '7 days',
    p_now timestamptz default null
) returns table (
    outcome text, ord int, verdict text, event_id uuid, run_id uuid, reason text, missing bigint, restarts bigint
)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_poll  semel.poll;
    v_low   bigint := (select min(x.id) from unnest(p_ids) as x(id));
    v_holes bigint[] := '{}';
    v_anew  boolean;
begin
    perform semel.project_require(p_project);
    if coalesce(cardinality(p_ids), 0) not between 1 and 256
       or exists (select from unnest(p_ids) as x(id) where (x.id between 0 and p_next - 1) is not true) then
        raise exception using errcode = 'SMQ01', message = 'the next id of a poll is above those that came',
            hint = 'Send 1 to 256 ids, and the next one behind them.';
    end if;
    select * into v_poll from semel.poll as p
    where p.project_id = p_project and p.bot = p_bot and p.holder = p_holder and p.fence = p_fence for update;
    if not found then
        return query select 'lost', null::int, null::text, null::uuid, null::uuid, null::text, null::bigint, null::bigint;
        return;
    end if;
    if v_poll.next_id is distinct from p_seen then
        return query select 'stale', null::int, null::text, null::uuid, null::uuid, null::text, v_poll.missing, v_poll.restarts;
        return;
    end if;
    v_anew := coalesce(v_low < p_seen or v_poll.moved_at <= v_now - interval '6 days' and v_low <> p_seen
                       or v_low - p_seen > 100000, false);
    if p_next - coalesce(p_seen, v_low) > cardinality(p_ids) and not v_anew then
        v_holes := array(
            select g.id from generate_series(coalesce(p_seen, v_low), p_next - 1) as g(id)
            where g.id <> all (p_ids)
              -- What came in another way, such as by a webhook, is not missing.
              and not exists (select from semel.dedupe as d where d.project_id = p_project
                              and d.dedupe_key = semel.event_key(v_poll.source, g.id::text))
            order by g.id limit 100256);
    end if;
    update semel.poll as p set
        next_id = p_next, moved_at = v_now, lease_until = v_now + p_lease,
        since = case when p.state = 'polling' then p.since else v_now end,
        state = 'polling', said = '', failures = 0,
        updates = p.updates + cardinality(p_ids),
        missing = p.missing + cardinality(v_holes),
        missing_from = coalesce(v_holes[1], p.missing_from),
        missing_upto = coalesce(v_holes[cardinality(v_holes)], p.missing_upto),
        missing_at = case when cardinality(v_holes) > 0 then v_now else p.missing_at end,
        restarts = p.restarts + v_anew::int
    where p.project_id = p_project and p.bot = p_bot
    returning p.* into v_poll;
    return query select 'committed', null::int, null::text, null::uuid, null::uuid, null::text, v_poll.missing, v_poll.restarts;
    return query select 'committed', a.ord, a.verdict, a.event_id, a.run_id, a.reason, v_poll.missing, v_poll.restarts
        from semel.event_accept(p_project, p_events, p_bodies, p_memory, p_now) as a order by a.ord;
end
$$;

-- Give the lease back. p_state: stopped, and it is anybody's at once; or what keeps the server from
-- answering, p_said in its own words, and nobody asks again before p_wait has passed.
create or replace function semel.poll_leave(
    p_project text, p_bot text, p_holder uuid, p_fence bigint, p_state text, p_said text default '',
    p_wait interval default '0', p_now timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.poll as p set
        holder = null, lease_until = null,
        since = case when p.state = p_state then p.since else v_now end,
        state = p_state, said = left(p_said, 1000),
        failures = case when p_state = 'stopped' then p.failures else p.failures + 1 end,
        retry_at = case when p_wait > '0' then v_now + p_wait end
    where p.project_id = p_project and p.bot = p_bot and p.holder = p_holder and p.fence = p_fence;
    return case when found then 'left' else 'lost' end;
end
$$;
