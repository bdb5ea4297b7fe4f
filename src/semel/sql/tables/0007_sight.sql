-- What a person asks for without naming a run: what is open, what could not be undone.

create index approval_by_time on semel.approval (project_id, created_at, approval_id);
create index run_history_undo on semel.run_history (project_id, finished_at) where kind = 'undo';
create index run_history_held on semel.run_history (project_id, run_id) where undo = 'held';
