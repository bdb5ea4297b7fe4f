"""What is true of every database of ours, whatever was sent to it. Empty answers are good ones."""

from typing import Any

from fix_world import Conn

#: Each selects what must not be.
FAULTS = {
    "an event whose run is nowhere": """
        select d.event_id from semel.dedupe as d where d.run_id is not null and not exists (
            select from semel.runs as r where r.project_id = d.project_id and r.run_id = d.run_id)""",
    "a run of an event that names another": """
        select r.run_id from semel.runs as r join semel.dedupe as d using (project_id, event_id)
        where d.run_id is distinct from r.run_id""",
    "an event with two runs": """
        select event_id from semel.runs where event_id is not null
        group by project_id, event_id having count(*) > 1""",
    "an id that two events have": """
        select event_id from semel.dedupe group by project_id, event_id having count(*) > 1""",
    "a key that is no digest of its parts": """
        select event_id from semel.dedupe
        where dedupe_key <> semel.event_key(source, provider_event_id)""",
    "a run that is live and finished, or finished twice": """
        select run_id from semel.runs group by project_id, run_id having count(*) > 1""",
    "a run whose input is nowhere": "select run_id from semel.runs where input is null",
    "a raw body that is gone, or another's": """
        select d.delivery_id from semel.delivery as d
        left join semel.body as b using (project_id, body_digest)
        where d.body_digest is not null and coalesce(d.body, b.content) is null
           or sha256(b.content) <> d.body_digest""",
    "an open alert whose event is gone": """
        select f.fingerprint from semel.fold as f where f.status = 'firing' and not exists (
            select from semel.dedupe as d where d.project_id = f.project_id and d.event_id = f.event_id)""",
    "an attempt of no run": """
        select a.run_id from semel.attempt as a where not exists (
            select from semel.runs as r where r.project_id = a.project_id and r.run_id = a.run_id)""",
    "two ends of one attempt": """
        select run_id from semel.attempts where outcome <> 'running'
        group by project_id, run_id, fence having count(*) > 1""",
    "a fence that is behind a finished attempt": """
        select a.run_id from semel.attempt as a join semel.runs as r using (project_id, run_id)
        where a.fence > r.fence""",
    "an operation that ended and did not, or is nobody's": """
        select request_id from semel.operation
        where status in ('SUCCEEDED', 'FAILED') and completed_at is null
           or status = 'PROCESSING' and (completed_at is not null or processing_at is null)
           or status = 'PROCESSING' and mode = 'recorded' and xact is null
           or attempts < 0 or octet_length(request_id) not between 1 and 512""",
    "a gap in a journal, or what is gone in it": """
        select p.project_id from semel.journal_project as p
        left join semel.journal_entry as e on e.project_id = p.project_id
        group by p.project_id, p.next_seq, p.dropped_seq
        having count(e.seq) <> p.next_seq - 1 - p.dropped_seq or min(e.seq) <= p.dropped_seq
            or max(e.seq) >= p.next_seq""",
    "an entry of a journal that is there twice": """
        select entry_id from semel.journal group by project_id, entry_id having count(*) > 1""",
    "a cursor beyond the end of its journal": """
        select c.consumer from semel.journal_cursor as c
        left join semel.journal_project as p on p.project_id = c.project_id
        where c.seq > coalesce(p.next_seq - 1, 0) or c.seq < 0""",
}
#: Where nothing was forgotten and no clock was told: every arrival is counted.
ARRIVALS = {
    "an event that was not new exactly once": """
        select event_id from semel.dedupe as e where 1 <> (
            select count(*) from semel.deliveries as d
            where d.project_id = e.project_id and d.event_id = e.event_id and d.verdict = 'new')""",
    "an arrival that was not counted": """
        select event_id from semel.dedupe as e where hits <> (
            select count(*) from semel.deliveries as d
            where d.project_id = e.project_id and d.event_id = e.event_id
              and d.verdict not in ('conflict', 'quarantined', 'ignored'))""",
}


def faults(conn: Conn, *, arrivals: bool = False) -> dict[str, list[Any]]:
    """The faults of the database, by their sentences."""
    asked = FAULTS | (ARRIVALS if arrivals else {})
    found = {
        sentence: conn.execute(f"{sql} limit 5").fetchall() for sentence, sql in asked.items()
    }
    return {sentence: rows for sentence, rows in found.items() if rows}
