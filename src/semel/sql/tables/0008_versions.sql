-- Versions: what one version of an agent's code began, only that version goes on with. And agents
-- whose events join the run that is at it.

alter table semel.agent
    add column joins boolean not null default false; -- events of one correlation key join its live run

alter table semel.worker
    add column versions text[] not null default '{}'; -- agent@version, of the agents that have one

-- The version before the lane: a claim looks into the queues of its own version and of none, and
-- never walks another's.
drop index semel.run_claimable;
create index run_claimable on semel.run (project_id, agent, version, lane, ready_at, run_id)
    where ready_at is not null;

-- Signatures that grew.
drop function if exists semel.run_claim(text, text, text, int, interval, int, int[], timestamptz[], boolean, timestamptz);
drop function if exists semel.run_hint(text[], text[], text[], int[], timestamptz[], int, timestamptz);
drop function if exists semel.worker_register(text, text, text, int, int, text[], int[], int[], text[], timestamptz);
