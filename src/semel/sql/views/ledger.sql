-- Operations, one row each. What they answered is granted apart: only who may read
-- semel.operation.reply_body sees result and reply_headers here, others see null.
create or replace view semel.operations as
select o.project_id, o.request_id, o.target, o.event_type, o.actor_user_id, o.payload, o.status, o.attempts,
    case when (select has_column_privilege('semel.operation', 'reply_body', 'select'))
         then semel.reply_json(o.reply_body) end as result,
    o.error, o.created_at, o.updated_at, o.error_code, o.mode, o.holder, o.xact, o.reply_status,
    case when (select has_column_privilege('semel.operation', 'reply_body', 'select'))
         then o.reply_headers end as reply_headers,
    octet_length(o.reply_body) as reply_bytes, o.gone, o.processing_at, o.completed_at, o.imported_from,
    h.name as holder_name, h.beat_at as holder_beat_at
from semel.operation as o
left join semel.operation_holder as h on h.project_id = o.project_id and h.holder_id = o.holder;
