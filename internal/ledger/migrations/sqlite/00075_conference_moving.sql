-- +goose Up

-- 1 while the unit of an open conference is drained and the conference waits for another one.
ALTER TABLE conferences ADD COLUMN moving BIGINT NOT NULL DEFAULT 0;
CREATE INDEX conferences_moving ON conferences (id) WHERE moving = 1;

-- +goose Down
DROP INDEX conferences_moving;
ALTER TABLE conferences DROP COLUMN moving;
