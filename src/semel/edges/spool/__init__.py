"""
The spool: arrivals wait on this disk while the database is away.

It is for senders that never send again; what waits comes into the inbox once, in its order.

    door     ── which way an arrival goes: straight in, or behind what waits
    queue    ── what waits of one source; its arrivals share a write and its fsync
    files    ── the segments of a source on the disk; crash-safe at every byte
    segment  ── one file: frames with a length and a checksum
    seal     ── what is in a frame, closed with a key of the configuration
    record   ── what is kept of an arrival: read and verified, and no secret in it
    folder   ── the folder of this process alone, its bound, and what is damaged in it
    drain    ── one transaction for the records and for how far the drain has come
    spool    ── the three of a process, opened and closed together

The disk decides nothing: whether a record is accepted is said by its segment's position in the
database, which moves in the transaction that accepts it.
"""

from __future__ import annotations

from semel.edges.spool.spool import Spool

__all__ = ["Spool"]
