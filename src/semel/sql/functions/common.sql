-- Small pure helpers that the other files share. Nothing here reads or writes a table.

-- Refuse a project that is no slug. NULL is sent as '' and refused here, since a NULL
-- distribution key crashes a Citus coordinator.
create or replace function semel.project_require(p_project text) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
    if p_project is null or p_project !~ '^[a-z0-9][a-z0-9_-]{0,63}$' then
        raise exception using
            errcode = 'SMQ01',
            message = format('%L is no project', left(coalesce(p_project, ''), 80)),
            hint = 'A project is 1 to 64 of a-z, 0-9, _ and -, and starts with a letter or digit.';
    end if;
end
$$;

-- Refuse an agent that is no name.
create or replace function semel.agent_require(p_agent text) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
    if p_agent is null or p_agent !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$' then
        raise exception using
            errcode = 'SMQ01',
            message = format('%L is no agent', left(coalesce(p_agent, ''), 150)),
            hint = 'An agent is 1 to 128 of A-Z, a-z, 0-9, _, . and -.';
    end if;
end
$$;

-- Refuse a version that is none; '' is that of code without one.
create or replace function semel.version_require(p_versions text[]) returns void
language plpgsql immutable set search_path = pg_catalog as $$
declare
    v_version text;
begin
    foreach v_version in array p_versions loop
        if v_version is null or v_version <> '' and v_version !~ '^[A-Za-z0-9_.-]{1,64}$' then
            raise exception using
                errcode = 'SMQ01',
                message = format('%L is no version', left(coalesce(v_version, ''), 80)),
                hint = 'A version is 1 to 64 of A-Z, a-z, 0-9, _, . and -.';
        end if;
    end loop;
end
$$;

-- Refuse a step's key that the journal cannot hold.
create or replace function semel.key_require(p_keys text[]) returns void
language plpgsql immutable set search_path = pg_catalog as $$
begin
    if exists (select from unnest(p_keys) as x(key) where x.key is null or octet_length(x.key) not between 1 and 255) then
        raise exception using
            errcode = 'SMQ01',
            message = 'a step without a key, or with one above 255 bytes',
            hint = 'Give the step a shorter name.';
    end if;
end
$$;

-- SHA-256 over the parts, each behind its length in bytes, so that no two lists of parts agree.
create or replace function semel.parts_digest(variadic p_parts text[]) returns bytea
language sql immutable set search_path = pg_catalog as $$
    select sha256(string_agg(int4send(octet_length(b)) || b, ''::bytea order by n))
    from unnest(p_parts) with ordinality as part(t, n)
    cross join lateral (select convert_to(part.t, 'UTF8') as b) as bytes
$$;

-- The functions below fix no search_path, which would keep them from being inlined; every name in
-- them is qualified instead, and their callers' path is pg_catalog. Nor would one that is declared
-- immutable and calls convert_to, which PostgreSQL has for stable.

-- parts_digest of the source and the provider's id: what dedupe remembers an event by.
create or replace function semel.event_key(p_source text, p_id text) returns bytea
language sql stable parallel safe as $$
    select pg_catalog.sha256(
        pg_catalog.int4send(pg_catalog.octet_length(p_source)) || pg_catalog.convert_to(p_source, 'UTF8')
        || pg_catalog.int4send(pg_catalog.octet_length(p_id)) || pg_catalog.convert_to(p_id, 'UTF8'))
$$;

-- A uuid of version 7 whose time is p_at: neighbours in time are neighbours in the index.
create or replace function semel.uuid_at(p_at timestamptz) returns uuid
language sql volatile as $$
    select pg_catalog.encode(
        pg_catalog.set_bit(pg_catalog.set_bit(
            pg_catalog.overlay(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
                pg_catalog.substring(pg_catalog.int8send(
                    (extract(epoch from p_at) * 1000)::pg_catalog.int8), 3),
                1, 6),
            52, 1), 53, 1),
        'hex')::pg_catalog.uuid
$$;

-- The smallest uuid of version 7 of p_at's millisecond: ids below it were made earlier.
create or replace function semel.uuid_floor(p_at timestamptz) returns uuid
language sql immutable set search_path = pg_catalog as $$
    select encode(substring(int8send((extract(epoch from p_at) * 1000)::bigint) from 3) || '\x70008000000000000000',
                  'hex')::uuid
$$;

-- The millisecond that a uuid of version 7 begins with.
create or replace function semel.uuid_time(p_id uuid) returns timestamptz
language sql immutable set search_path = pg_catalog as $$
    select to_timestamp(('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$$;

-- RESUMED goes ahead of all, then priority 9 to 0. A run whose last worker was lost waits in a
-- lane of its own (100 and more), where only a claim for one run at a time looks.
create or replace function semel.run_lane(p_status text, p_priority int, p_suspect boolean) returns smallint
language sql immutable parallel safe as $$
    select (case when p_status = 'RESUMED' then 0 else 10 - p_priority end
        + case when p_suspect then 100 else 0 end)::pg_catalog.int2
$$;
