-- +goose Up

-- The generation of the unit that owns a conference. Earlier versions do not write it: where it is wrong, the row is read.
ALTER TABLE conferences ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;
UPDATE conferences SET generation = CAST(json_extract(body, '$.owner.generation') AS BIGINT) WHERE owner <> '';
DROP INDEX conferences_owner;
CREATE INDEX conferences_owner ON conferences (owner, generation) WHERE owner <> '';

-- +goose Down
DROP INDEX conferences_owner;
CREATE INDEX conferences_owner ON conferences (owner) WHERE owner <> '';
ALTER TABLE conferences DROP COLUMN generation;
