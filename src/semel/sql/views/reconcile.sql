-- What people judged of operations, one row each; the latest of an operation is the one in force.
create or replace view semel.judgements as
select j.project_id, j.judgement_id, j.request_id, j.judged_at, j.judged_by, j.reason, j.before, j.after
from semel.judgement as j;
