-- Approvals, one row each, with who decided.
create or replace view semel.approvals as
select a.project_id, a.approval_id, a.run_id, a.step_key, a.title, a.action, a.digest, a.state, a.need, a.approvers,
    a.requester, a.created_at, a.expires_at, a.decided_at,
    (select jsonb_agg(jsonb_build_object('voter', v.voter, 'decision', v.decision, 'reason', v.reason, 'via', v.via,
                                         'address', v.address, 'user_agent', v.user_agent,
                                         'at', v.voted_at) order by v.voted_at, v.voter)
     from semel.approval_vote as v where v.project_id = a.project_id and v.approval_id = a.approval_id) as votes,
    (select jsonb_agg(jsonb_build_object('recipient', t.recipient, 'at', t.minted_at) order by t.minted_at, t.recipient)
     from semel.approval_token as t where t.project_id = a.project_id and t.approval_id = a.approval_id) as links
from semel.approval as a;

create or replace view semel.waits as
select w.project_id, w.run_id, w.step_key, w.kind, w.name, w.child_id, w.due_at, w.created_at from semel.wait as w;

create or replace view semel.signals as
select s.project_id, s.run_id, s.signal_id, s.name, s.content, s.sender, s.event_id, s.sent_at, s.taken_by from semel.signal as s;
