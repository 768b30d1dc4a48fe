-- +goose Up

-- The furthest step for which a provider was called, -1 for none.
ALTER TABLE tasks ADD COLUMN called_step INTEGER NOT NULL DEFAULT -1;
UPDATE tasks SET called_step = begun_step WHERE begun_step >= 0;

-- +goose Down
ALTER TABLE tasks DROP COLUMN called_step;
