-- +goose Up

-- The last state of conferences, and their detail records once they have ended.
CREATE TABLE conferences (
    id         TEXT   NOT NULL PRIMARY KEY,
    e164       TEXT   NOT NULL, -- reused when the conference has ended
    user_id    TEXT   NOT NULL,
    status     TEXT   NOT NULL,
    owner      TEXT   NOT NULL, -- the unit that runs it; empty when none does
    epoch      BIGINT NOT NULL,
    revision   BIGINT NOT NULL, -- rises with each change
    created_at BIGINT NOT NULL,
    lost_at    BIGINT NOT NULL, -- while it waits for recovery
    refused_at BIGINT NOT NULL, -- when a unit first refused to recover it
    body       TEXT   NOT NULL  -- the whole conference, JSON
);
CREATE INDEX conferences_number ON conferences (e164, created_at);
CREATE INDEX conferences_user ON conferences (user_id, created_at, id);
CREATE INDEX conferences_created ON conferences (created_at, id);
CREATE INDEX conferences_status ON conferences (status, created_at, id);
CREATE INDEX conferences_owner ON conferences (owner) WHERE owner <> '';
CREATE INDEX conferences_waiting ON conferences (refused_at, lost_at, id) WHERE status = 'awaiting-recovery';

-- The last epoch of each number. Rows are never deleted: a reused number must not fall behind an old unit.
CREATE TABLE conference_epochs (
    e164  TEXT   NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
);

-- The next number of each range.
CREATE TABLE conference_numbers (
    first TEXT   NOT NULL PRIMARY KEY,
    next  BIGINT NOT NULL
);

-- +goose Down
DROP TABLE conference_numbers;
DROP TABLE conference_epochs;
DROP TABLE conferences;
