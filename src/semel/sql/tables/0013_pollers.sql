-- Who asks a server for a bot's events, and how far he has come.

-- One row is one queue of events on a server of others, such as a Telegram bot's. It is named by
-- the bot, so that of two sources with one bot only one polls.
create table semel.poll (
    project_id   text not null,
    bot          text not null,         -- whose queue, and on which server; no secret is in it
    source       text not null,         -- that its events come in as; the last holder's
    next_id      bigint,                -- all that came below it is committed; null: nothing came yet
    moved_at     timestamptz,           -- when something came last
    fence        bigint not null default 0,
    holder       uuid,                  -- who polls until lease_until; null: nobody
    place        text not null default '', -- where the last holder ran, for people
    lease_until  timestamptz,
    state        text not null default 'starting',
    said         text not null default '', -- what the server said of it, for people
    since        timestamptz not null,  -- of the state
    failures     int not null default 0, -- in a row
    retry_at     timestamptz,           -- nobody asks before
    updates      bigint not null default 0, -- that came, again and again counted
    missing      bigint not null default 0, -- ids that never came
    missing_from bigint,                -- the last ones of them
    missing_upto bigint,
    missing_at   timestamptz,
    restarts     bigint not null default 0, -- how often the ids began anew

    primary key (project_id, bot),
    constraint poll_state_is_known check (state in
        ('starting', 'polling', 'stopped', 'webhook', 'conflict', 'refused', 'throttled', 'failing', 'elsewhere')),
    constraint poll_place_is_short check (octet_length(place) <= 1000),
    constraint poll_says_little check (octet_length(said) <= 4000)
) with (fillfactor = 50);
