-- Flow: how often an agent's runs are claimed, how many of one key run at once, and what an
-- operator has set instead of what the code says.

-- max_running, rate_* and key_limit are in force. code_* is what the code says; of what is named in
-- edits an operator has said otherwise, and the code is heard again when he clears it.
alter table semel.agent
    add column rate_claims    int,               -- so many claims in each rate_span; null: no limit
    add column rate_span      interval,
    add column key_path       text,              -- where in the input a run's key is; null: only starts say one
    add column key_limit      int,               -- runs of one key leased at once; null: one
    add column code_running   int,
    add column code_claims    int,
    add column code_span      interval,
    add column code_key_limit int,
    add column edits          text[] not null default '{}',
    add constraint agent_rate_has_a_span check ((rate_claims is null) = (rate_span is null)),
    add constraint agent_may_be_claimed_at_some_rate check (
        rate_claims between 1 and 1000000 and rate_span between interval '1 ms' and interval '24 hours'),
    add constraint agent_may_run_one_of_a_key check (key_limit >= 1);
update semel.agent set code_running = max_running;

-- What is left of an agent's rate. Only claims of an agent with a rate touch it.
create table semel.agent_bucket (
    project_id text     not null,
    agent      text     not null,
    claims     int      not null,       -- the rate that level counts in
    span       interval not null,
    level      bigint   not null,       -- a claim takes one span in microseconds; a full bucket has claims of them
    filled_at  timestamptz not null,

    primary key (project_id, agent),
    constraint agent_bucket_is_never_overdrawn check (level >= 0)
) with (fillfactor = 20);

-- A run's key. Lanes of 200 and more are those of runs whose key is full: no claim looks there.
alter table semel.run add column concurrency_key text;
alter table semel.run_history add column concurrency_key text;

-- Who holds a key, and who waits for it. One index: each costs every claim its look at the predicate.
create index run_key on semel.run (project_id, agent, concurrency_key, lane, ready_at, run_id)
    where concurrency_key is not null and (worker_id is not null or lane >= 200);

-- Signatures that grew.
drop function if exists semel.run_allowance(text, text, int);
drop function if exists semel.run_hint(text[], text[], text[], text[], text[], int[], timestamptz[], int, timestamptz);
drop function if exists semel.run_create(text, uuid[], text[], jsonb[], int[], int[], text[], uuid[], timestamptz, timestamptz, text);
drop function if exists semel.run_start(text, text, text, text, text, int, int, interval, interval, text, interval, timestamptz);
drop function if exists semel.run_join(text, uuid, text, jsonb, int, int, text, uuid, timestamptz, timestamptz, text);
drop function if exists semel.worker_register(text, text, text, int, int, text[], int[], int[], text[], text[], boolean[], timestamptz);
