-- +goose Up

-- The lists of operators: tasks, executions and sessions of all users or of one, newest first.
CREATE INDEX tasks_by_time ON tasks (created_at, id, user_id);
CREATE INDEX executions_by_time ON executions (started_at, id);
CREATE INDEX executions_by_user ON executions (user_id, started_at, id);
CREATE INDEX sessions_by_time ON sessions (updated_at, id);
CREATE INDEX sessions_by_user ON sessions (user_id, updated_at, id);

-- +goose Down
DROP INDEX sessions_by_user;
DROP INDEX sessions_by_time;
DROP INDEX executions_by_user;
DROP INDEX executions_by_time;
DROP INDEX tasks_by_time;
