-- What ingresses keep on their own disks while the database is away, as far as the database knows.

-- One row is one spool that serves a source: each ingress has its own, and tells of it.
create table semel.spool (
    project_id text not null,
    source     text not null,
    spool_id   uuid not null,           -- of its folder
    place      text not null,           -- host and folder, for people
    seen_at    timestamptz not null,

    primary key (project_id, source, spool_id),
    constraint spool_says_where check (place <> '' and octet_length(place) <= 1000)
);

-- One row is one file of a spool that is being drained; it goes when the file has gone.
create table semel.spool_segment (
    project_id text not null,
    segment_id uuid not null,
    source     text not null,
    position   bigint not null,         -- the records up to this one are accepted
    moved_at   timestamptz not null,

    primary key (project_id, segment_id),
    constraint spool_segment_begins_at_one check (position > 0)
) with (fillfactor = 70);
