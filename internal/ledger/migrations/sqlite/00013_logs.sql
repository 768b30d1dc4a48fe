-- +goose Up

-- One log for the events of tasks and the actions of operators.
CREATE TABLE new_audit_log (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at BIGINT NOT NULL,
    user_id    TEXT NOT NULL, -- of the task, or the operator
    event      TEXT NOT NULL, -- of a task, or the operation id of an action
    task_id    TEXT NOT NULL,
    service_id TEXT   NOT NULL,
    queue_id   TEXT   NOT NULL,
    detail     TEXT   NOT NULL,
    target     TEXT   NOT NULL, -- path of the request of an action, else empty
    request_id TEXT   NOT NULL,
    status     INTEGER NOT NULL -- HTTP status of the response to an action, 0 before it
);

INSERT INTO new_audit_log (created_at, user_id, event, task_id, service_id, queue_id, detail, target, request_id, status)
    SELECT created_at, user_id, event, task_id, service_id, queue_id, detail, target, request_id, status FROM (
        SELECT created_at, user_id, event, task_id, service_id, queue_id, detail, '' AS target, '' AS request_id, 0 AS status, id
            FROM audit_log
        UNION ALL SELECT created_at, user_id, action, '', '', '', '{}', target, request_id, status, id FROM operator_actions
    ) earlier ORDER BY created_at, id;

DROP TABLE audit_log;
DROP TABLE operator_actions;
ALTER TABLE new_audit_log RENAME TO audit_log;
CREATE INDEX audit_log_by_time ON audit_log (created_at, id);
CREATE INDEX audit_log_by_user ON audit_log (user_id, created_at, id);
CREATE INDEX audit_log_by_event ON audit_log (event, created_at, id);
CREATE INDEX audit_log_by_task ON audit_log (user_id, task_id, created_at, id);

DROP INDEX usage_log_by_user;
CREATE INDEX usage_log_by_user ON usage_log (user_id, created_at, task_id, step, fence, call_no);
CREATE INDEX usage_log_by_time ON usage_log (created_at, user_id, task_id, step, fence, call_no);
CREATE INDEX usage_log_by_model ON usage_log (model, created_at, user_id, task_id, step, fence, call_no);

DROP INDEX tasks_by_time; -- no query needs it

-- There is no way back: the earlier schema has two logs.
