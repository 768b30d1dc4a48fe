-- +goose Up

-- The ids of executions are chosen by users. The column id has a key of the user and the id, except in rows of earlier versions, which
-- have the id there and '' here.
ALTER TABLE executions ADD COLUMN execution_id TEXT NOT NULL DEFAULT '';
CREATE INDEX executions_by_execution ON executions (execution_id, user_id);

-- +goose Down
DROP INDEX executions_by_execution;
ALTER TABLE executions DROP COLUMN execution_id;
