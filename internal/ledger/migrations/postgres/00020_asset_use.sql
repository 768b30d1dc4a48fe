-- +goose Up

-- When a task that was accepted first used the asset, 0 before that. Unused assets are deleted after a time.
ALTER TABLE assets ADD COLUMN used_at BIGINT NOT NULL DEFAULT 0;
UPDATE assets SET used_at = created_at;
CREATE INDEX assets_unused ON assets (created_at) WHERE used_at = 0;

-- Only the résumés of tasks are searched.
DELETE FROM passages WHERE asset_id NOT IN (SELECT id FROM (
    SELECT DISTINCT variables::json ->> 'resume' AS id FROM tasks
    UNION SELECT DISTINCT variables::json ->> 'detailedResume' AS id FROM tasks
) resumes WHERE id IS NOT NULL);

-- +goose Down
DROP INDEX assets_unused;
ALTER TABLE assets DROP COLUMN used_at;
