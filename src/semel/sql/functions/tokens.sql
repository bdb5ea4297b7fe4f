-- Tokens: who may call the API. The token itself is never stored, only its SHA-256.
--
-- Clock: p_now, or the server's.

create or replace function semel.token_create(
    p_project text, p_hash bytea, p_role text, p_name text default '', p_source text default null,
    p_now timestamptz default null
) returns table (token_id uuid)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_id  uuid := semel.uuid_at(v_now);
begin
    perform semel.project_require(p_project);
    insert into semel.token (project_id, token_id, token_hash, name, role, source, created_at)
    values (p_project, v_id, p_hash, p_name, p_role, p_source, v_now);
    return query select v_id;
end
$$;

-- The role and source a token stands for in p_project; no row for a stranger or a revoked one.
create or replace function semel.token_check(p_project text, p_hash bytea) returns table (token_id uuid, role text, source text)
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return query
        select t.token_id, t.role, t.source from semel.token as t
        where t.project_id = p_project and t.token_hash = p_hash and t.revoked_at is null;
end
$$;

create or replace function semel.token_list(p_project text)
returns table (token_id uuid, role text, source text, name text, created_at timestamptz, revoked_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog as $$
begin
    perform semel.project_require(p_project);
    return query
        select t.token_id, t.role, t.source, t.name, t.created_at, t.revoked_at from semel.token as t
        where t.project_id = p_project order by t.token_id;
end
$$;

-- outcome: won, already or unknown.
create or replace function semel.token_revoke(p_project text, p_token uuid, p_now timestamptz default null)
returns table (token_id uuid, outcome text)
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
begin
    perform semel.project_require(p_project);
    update semel.token as t set revoked_at = v_now
    where t.project_id = p_project and t.token_id = p_token and t.revoked_at is null;
    if found then
        return query select p_token, 'won';
    else
        return query select p_token, case
            when exists (select from semel.token as t where t.project_id = p_project and t.token_id = p_token)
            then 'already' else 'unknown' end;
    end if;
end
$$;
