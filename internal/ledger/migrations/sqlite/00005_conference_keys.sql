-- +goose Up

-- The conference and its number that each idempotency key of a creation refers to.
CREATE TABLE conference_keys (
    id            TEXT NOT NULL PRIMARY KEY, -- of user and key
    request_hash  TEXT NOT NULL,
    conference_id TEXT NOT NULL, -- replaced when the first one does not exist any more
    e164          TEXT NOT NULL
);

-- +goose Down
DROP TABLE conference_keys;
