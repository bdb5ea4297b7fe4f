-- Approvals: a question to people, decided once.
--
--   asked (with the parking of its run) ──> PENDING ──need approvals──> APPROVED ──> the run goes on
--                                              ├──one rejection──────> REJECTED ──> the run goes on
--                                              ├──its time is over──> EXPIRED ───> the run has FAILED
--                                              └──its run ended───────> VOID
--
-- Fence: asking is the parking worker's (run, fence, worker). Deciding is compare-and-set on PENDING
--   under the run's lock; expiry takes the same lock, and both read the clock after it.
-- Locks: run, then approval, then wait, step.
-- Clock: p_now, or the server's.

-- Ask, and start one notification for each recipient, in the transaction that parks the run.
-- Asked again with the same digest nothing is new; with another the old question is void.
-- Internal; the caller holds the run's lock.
create or replace function semel.approval_ask(
    p_project text, p_run semel.run, p_key text, p_approval jsonb, p_ttl interval, p_now timestamptz
) returns void
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_old semel.approval;
    v_id  uuid := (p_approval ->> 'id')::uuid;
begin
    select * into v_old from semel.approval as a
    where a.project_id = p_project and a.run_id = p_run.run_id and a.step_key = p_key and a.state = 'PENDING'
    for update;
    if found and v_old.digest = p_approval ->> 'digest' then
        return;
    elsif found then
        update semel.approval as a set state = 'VOID', decided_at = p_now
        where a.project_id = p_project and a.approval_id = v_old.approval_id;
        update semel.wait as w set due_at = p_now + p_ttl
        where w.project_id = p_project and w.run_id = p_run.run_id and w.step_key = p_key;
    end if;
    insert into semel.approval (project_id, approval_id, run_id, step_key, title, action, digest, need,
        approvers, requester, created_at, expires_at)
    values (p_project, v_id, p_run.run_id, p_key, p_approval ->> 'title', p_approval -> 'action', p_approval ->> 'digest',
        coalesce((p_approval ->> 'need')::int, 1),
        case when jsonb_typeof(p_approval -> 'approvers') = 'array'
             then array(select jsonb_array_elements_text(p_approval -> 'approvers')) end,
        p_approval ->> 'requester', p_now, p_now + p_ttl);
    perform semel.run_spawn(p_project, semel.uuid_at(p_now), 'semel.notify',
        jsonb_build_object('approval_id', v_id, 'recipient', n.recipient), p_run.run_id, 'notify', 9, p_now, p_now + p_ttl)
    from jsonb_array_elements_text(coalesce(p_approval -> 'notify', '[]')) as n(recipient);
end
$$;

-- Keep the hash of a link's secret before the link is sent, for the notification run that p_worker
-- holds. outcome: won; gone (decided, expired or void: send nothing); lost.
create or replace function semel.approval_mint(
    p_project text, p_worker text, p_run uuid, p_fence bigint, p_approval uuid, p_recipient text,
    p_token_hash bytea, p_now timestamptz default null
) returns text
language plpgsql security definer set search_path = pg_catalog as $$
declare
    v_now timestamptz;
begin
    perform semel.project_require(p_project);
    perform from semel.run as r
    where r.project_id = p_project and r.run_id = p_run and r.fence = p_fence
      and r.worker_id is not distinct from p_worker
    for share;
    if not found then
        return 'lost';
    end if;
    perform from semel.approval as a
    where a.project_id = p_project and a.approval_id = p_approval and a.state = 'PENDING'
    for share;
    v_now := coalesce(p_now, clock_timestamp());
    if not found or exists (select from semel.approval as a where a.project_id = p_project
                            and a.approval_id = p_approval and a.expires_at <= v_now) then
        return 'gone';
    end if;
    insert into semel.approval_token (project_id, token_hash, approval_id, recipient, minted_at)
    values (p_project, p_token_hash, p_approval, p_recipient, v_now)
    on conflict on constraint approval_token_pkey do nothing;
    return 'won';
end
$$;

-- What a link, or an id, asks: the newest state. No row: no such link or id.
create or replace function semel.approval_read(
    p_project text, p_token_hash bytea default null, p_approval uuid default null, p_now timestamptz default null
) returns table (
    approval_id uuid, run_id uuid, agent text, step_key text, title text, action text, digest text, state text, need int,
    approvals int, approvers text[], requester text, recipient text, created_at timestamptz, expires_at timestamptz,
    decided_at timestamptz, decided_by text[], reason text, seconds_left double precision
)
language plpgsql stable security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now       timestamptz := coalesce(p_now, clock_timestamp());
    v_id        uuid := p_approval;
    v_recipient text;
begin
    perform semel.project_require(p_project);
    if p_token_hash is not null then
        select t.approval_id, t.recipient into v_id, v_recipient from semel.approval_token as t
        where t.project_id = p_project and t.token_hash = p_token_hash;
    end if;
    return query
        select a.approval_id, a.run_id,
            coalesce((select r.agent from semel.run as r where r.project_id = p_project and r.run_id = a.run_id),
                     (select h.agent from semel.run_history as h where h.project_id = p_project and h.run_id = a.run_id limit 1)),
            a.step_key, a.title, a.action::text, a.digest,
            case when a.state = 'PENDING' and a.expires_at <= v_now then 'EXPIRED' else a.state end, a.need,
            (select count(*)::int from semel.approval_vote as v where v.project_id = p_project
             and v.approval_id = a.approval_id and v.decision = 'approve'),
            a.approvers, a.requester, v_recipient, a.created_at, a.expires_at, a.decided_at,
            -- Of a rejection, who rejected: others may have approved before.
            array(select v.voter from semel.approval_vote as v where v.project_id = p_project
                  and v.approval_id = a.approval_id and (a.state <> 'REJECTED' or v.decision = 'reject')
                  order by v.voted_at, v.voter),
            (select v.reason from semel.approval_vote as v where v.project_id = p_project
             and v.approval_id = a.approval_id and (a.state <> 'REJECTED' or v.decision = 'reject')
             and v.reason is not null order by v.voted_at desc limit 1),
            extract(epoch from a.expires_at - v_now)::double precision
        from semel.approval as a where a.project_id = p_project and a.approval_id = v_id;
end
$$;

-- Decide, by a link's hash or by the approval's id. p_decision: approve or reject. p_digest: what the
-- voter saw; another one decides nothing.
-- outcome: won (decided, the run goes on); voted (counted, more are needed); already (decided before:
--   state says how); expired; void; refused (may not decide it: not an approver, or who asked);
--   unknown.
create or replace function semel.approval_decide(
    p_project text, p_token_hash bytea, p_approval uuid, p_decision text, p_voter text, p_via text,
    p_reason text default null, p_address text default null, p_user_agent text default null,
    p_digest text default null, p_now timestamptz default null
) returns table (approval_id uuid, run_id uuid, outcome text, state text, decided_at timestamptz, agent text)
language plpgsql security definer set search_path = pg_catalog as $$
#variable_conflict use_column
declare
    v_now      timestamptz;
    v_id       uuid := p_approval;
    v_voter    text := p_voter;
    v_run      semel.run;
    v_approval semel.approval;
    v_outcome  text;
begin
    perform semel.project_require(p_project);
    if p_decision is null or p_decision not in ('approve', 'reject') then
        raise exception using errcode = 'SMQ01', message = format('%L is no decision', left(p_decision, 80)),
            hint = 'Decide approve or reject.';
    end if;
    if p_token_hash is not null then
        -- A link speaks for whom it was sent to.
        select t.approval_id, t.recipient into v_id, v_voter from semel.approval_token as t
        where t.project_id = p_project and t.token_hash = p_token_hash;
    end if;
    if v_voter is null and (p_token_hash is null or v_id is not null) then
        raise exception using errcode = 'SMQ01', message = 'a decision that nobody makes',
            hint = 'Say who decides, or decide by a link.';
    end if;
    select * into v_approval from semel.approval as a where a.project_id = p_project and a.approval_id = v_id;
    if not found then
        return query select null::uuid, null::uuid, 'unknown', null::text, null::timestamptz, null::text;
        return;
    end if;
    select * into v_run from semel.run as r
    where r.project_id = p_project and r.run_id = v_approval.run_id for update;
    select * into v_approval from semel.approval as a
    where a.project_id = p_project and a.approval_id = v_id for update;
    v_now := coalesce(p_now, clock_timestamp());

    if v_approval.state in ('APPROVED', 'REJECTED') then
        v_outcome := 'already';
    elsif v_approval.state = 'EXPIRED' or v_approval.state = 'PENDING' and v_now >= v_approval.expires_at then
        v_outcome := 'expired';
    elsif v_approval.state = 'VOID' or v_run.run_id is null or p_digest <> v_approval.digest then
        v_outcome := 'void';
    elsif v_voter = v_approval.requester or v_approval.approvers is not null and v_voter <> all (v_approval.approvers) then
        v_outcome := 'refused';
    else
        insert into semel.approval_vote as v (project_id, approval_id, voter, decision, reason, via, address, user_agent, voted_at)
        values (p_project, v_id, v_voter, p_decision, p_reason, p_via, p_address, p_user_agent, v_now)
        on conflict on constraint approval_vote_pkey do update set
            decision = excluded.decision, reason = excluded.reason, via = excluded.via, address = excluded.address,
            user_agent = excluded.user_agent, voted_at = excluded.voted_at
        where v.decision = 'approve' and excluded.decision = 'reject';  -- who has second thoughts is heard
        v_approval.state := case
            when p_decision = 'reject' then 'REJECTED'
            when (select count(*) from semel.approval_vote as v where v.project_id = p_project
                  and v.approval_id = v_id and v.decision = 'approve') >= v_approval.need then 'APPROVED'
            else 'PENDING' end;
        v_outcome := case when v_approval.state = 'PENDING' then 'voted' else 'won' end;
    end if;
    if v_outcome = 'won' then
        v_approval.decided_at := v_now;
        update semel.approval as a set state = v_approval.state, decided_at = v_now
        where a.project_id = p_project and a.approval_id = v_id;
        perform semel.step_put(p_project, v_run, v_approval.step_key, 'result', 'approval', (
            select w.place from semel.wait as w where w.project_id = p_project and w.run_id = v_run.run_id
            and w.step_key = v_approval.step_key), jsonb_build_object(
            'approval_id', v_id, 'decision', p_decision, 'digest', v_approval.digest, 'decided_at', v_now, 'reason', p_reason,
            'by', (select jsonb_agg(v.voter order by v.voted_at, v.voter) from semel.approval_vote as v
                   where v.project_id = p_project and v.approval_id = v_id)), v_now);
        delete from semel.wait as w
        where w.project_id = p_project and w.run_id = v_run.run_id and w.step_key = v_approval.step_key;
        perform semel.run_resume(p_project, v_run.run_id, v_now);
    end if;
    return query select v_id, v_approval.run_id, v_outcome, v_approval.state, v_approval.decided_at, v_run.agent;
end
$$;
