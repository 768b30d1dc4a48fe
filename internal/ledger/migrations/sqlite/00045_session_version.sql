-- +goose Up
-- Increases with each change of a session, so that Redis keeps the last one when two arrive in the other order.
ALTER TABLE sessions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sessions DROP COLUMN version;
