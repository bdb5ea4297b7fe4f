-- Schedules: what starts runs by the clock.

-- code and edit are specs, as core/schedule_spec.py writes them: cron or every, timezone, agent, input and
-- so on. An edit is in force for as long as there is one. Upkeep looks at a row at look_at, works out
-- its ticks and fires them; null: it is paused, or nobody says it any more.
create table semel.schedule (
    project_id    text not null,
    schedule      text not null,
    code          jsonb,                -- what the program says
    edit          jsonb,                -- what an operator says instead
    program       text,                 -- whose code it is
    revision      bigint not null default 1, -- larger with each change of what is in force
    look_at       timestamptz,
    tick_at       timestamptz,          -- the next tick; null: the first one later than after_at
    after_at      timestamptz not null, -- no tick up to here is fired, or is to be
    last_tick_at  timestamptz,          -- fired or skipped
    last_fired_at timestamptz,          -- the tick of last_run_id
    last_run_id   uuid,
    fired_count   bigint not null default 0,
    missed_count  bigint not null default 0, -- ticks that its policy passed over
    skipped_count bigint not null default 0, -- ticks while the run before was live
    error         text,                 -- why upkeep could not work out its ticks
    paused_at     timestamptz,
    edited_at     timestamptz,
    withdrawn_at  timestamptz,          -- its program does not say it any more
    created_at    timestamptz not null,

    primary key (project_id, schedule),
    constraint schedule_is_said_by_someone check (code is not null or edit is not null),
    constraint schedule_code_is_a_programs check ((code is null) = (program is null)),
    constraint schedule_rests_exactly_while_nobody_wants_it check (
        (look_at is null) = (paused_at is not null or edit is null and withdrawn_at is not null))
) with (fillfactor = 80);

create index schedule_due on semel.schedule (project_id, look_at) where look_at is not null;
create index schedule_of_program on semel.schedule (project_id, program) where program is not null;
