-- Rates: how many claims of an agent there may be in a span of time, over all workers.
--
--   full (claims) ──claim──> less ──time──> more, up to full          empty: the hint says for how long
--
-- A bucket counts whole microseconds: a claim takes one span of them, each microsecond that passes adds
--   as many as there are claims in a span. So nothing is rounded, and in any span at most claims that
--   were saved up and claims that came back are taken.
-- Locks: agent, then its bucket, which is skipped where another claim has it.
-- Clock: p_now. One that stepped back gives nothing until it has come to where it was, or for a span.

-- A span in microseconds.
create or replace function semel.span_us(p_span interval) returns bigint
language sql immutable set search_path = pg_catalog as $$
    select (extract(epoch from p_span) * 1000000)::bigint
$$;

-- The bucket as it is at p_now, counted in the rate p_claims in p_span. When the rate is another than
-- it was counted in, what came since is the less of what either gives: nobody knows when it changed.
create or replace function semel.bucket_fill(
    p_bucket semel.agent_bucket, p_claims int, p_span interval, p_now timestamptz
) returns semel.agent_bucket
language plpgsql immutable set search_path = pg_catalog as $$
declare
    v_bucket semel.agent_bucket := p_bucket;
    v_span   bigint := semel.span_us(p_span);
    v_old    bigint := semel.span_us(p_bucket.span);
    v_passed interval := greatest(p_now - p_bucket.filled_at, '0');
begin
    if (p_bucket.claims, p_bucket.span) = (p_claims, p_span) then
        v_bucket.level := least(p_claims * v_span,
            p_bucket.level + p_claims * semel.span_us(least(v_passed, p_span)));
    else
        v_bucket.level := v_span * least(p_claims, p_bucket.level / v_old + least(
            p_bucket.claims * semel.span_us(least(v_passed, p_bucket.span)) / v_old,
            p_claims * semel.span_us(least(v_passed, p_span)) / v_span));
        v_bucket.claims := p_claims;
        v_bucket.span := p_span;
    end if;
    if p_now > p_bucket.filled_at or p_now < p_bucket.filled_at - p_span then
        v_bucket.filled_at := p_now;
    end if;
    return v_bucket;
end
$$;

-- Make the buckets of agents that have a rate and none yet, full. Made with the rate, so that no claim
-- has to, and meets another that does.
create or replace function semel.bucket_make(p_project text, p_agents text[], p_now timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    insert into semel.agent_bucket (project_id, agent, claims, span, level, filled_at)
    select a.project_id, a.agent, a.rate_claims, a.rate_span, a.rate_claims * semel.span_us(a.rate_span), p_now
    from semel.agent as a
    where a.project_id = p_project and a.agent = any (p_agents) and a.rate_claims is not null
      and not exists (select from semel.agent_bucket as b where b.project_id = p_project and b.agent = a.agent)
    order by a.agent
    on conflict on constraint agent_bucket_pkey do nothing;
end
$$;

-- How many claims the rate of an agent leaves. Its bucket is locked then; none where another claim has it, or where it is empty, which is seen without a lock.
create or replace function semel.rate_left(
    p_project text, p_agent text, p_claims int, p_span interval, p_now timestamptz
) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_bucket semel.agent_bucket;
begin
    select * into v_bucket from semel.agent_bucket as b where b.project_id = p_project and b.agent = p_agent;
    if not found then
        perform semel.bucket_make(p_project, array[p_agent], p_now);
    elsif (semel.bucket_fill(v_bucket, p_claims, p_span, p_now)).level < semel.span_us(p_span) then
        return 0;
    end if;
    select * into v_bucket from semel.agent_bucket as b
    where b.project_id = p_project and b.agent = p_agent for update skip locked;
    if not found then
        return 0;
    end if;
    return (semel.bucket_fill(v_bucket, p_claims, p_span, p_now)).level / semel.span_us(p_span);
end
$$;

-- Take p_count claims out of a bucket that rate_left has locked, with the same rate and moment.
create or replace function semel.rate_spend(
    p_project text, p_agent text, p_claims int, p_span interval, p_count int, p_now timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_bucket semel.agent_bucket;
begin
    select * into v_bucket from semel.agent_bucket as b where b.project_id = p_project and b.agent = p_agent;
    v_bucket := semel.bucket_fill(v_bucket, p_claims, p_span, p_now);
    update semel.agent_bucket as b set
        claims = p_claims, span = p_span, filled_at = v_bucket.filled_at,
        level = v_bucket.level - p_count * semel.span_us(p_span)
    where b.project_id = p_project and b.agent = p_agent;
end
$$;

-- How long until the rate of an agent leaves a claim; 0: it leaves one now. Locks nothing.
create or replace function semel.rate_wait(
    p_project text, p_agent text, p_claims int, p_span interval, p_now timestamptz
) returns interval
language plpgsql stable security definer set search_path = pg_catalog as $$
declare
    v_bucket semel.agent_bucket;
begin
    select * into v_bucket from semel.agent_bucket as b where b.project_id = p_project and b.agent = p_agent;
    if not found then
        return '0';
    end if;
    v_bucket := semel.bucket_fill(v_bucket, p_claims, p_span, p_now);
    if v_bucket.level >= semel.span_us(p_span) then
        return '0';
    end if;
    return v_bucket.filled_at - p_now
        + ceil((semel.span_us(p_span) - v_bucket.level)::numeric / p_claims)::float8 * interval '1 microsecond';
end
$$;
