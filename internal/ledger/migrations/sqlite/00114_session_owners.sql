-- +goose Up

-- The ids of sessions are chosen by users. The column id has a key of the user and the id, except in rows of earlier versions, which have
-- the id there and '' here.
ALTER TABLE sessions ADD COLUMN session_id TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE sessions DROP COLUMN session_id;
