-- +goose Up

-- What each idempotency key of a creation stands for: which conference, and under which number.
CREATE TABLE conference_keys (
    id            TEXT NOT NULL PRIMARY KEY, -- of user and key
    request_hash  TEXT NOT NULL,
    conference_id TEXT NOT NULL, -- another one when nothing is left of the first
    e164          TEXT NOT NULL
);

-- +goose Down
DROP TABLE conference_keys;
