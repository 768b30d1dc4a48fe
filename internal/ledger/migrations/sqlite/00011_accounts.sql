-- +goose Up

CREATE TABLE accounts (
    user_id TEXT NOT NULL PRIMARY KEY,
    credits BIGINT NOT NULL CHECK (credits >= 0)
);

-- Every change of an account. The sum of a user's entries is the balance.
CREATE TABLE credit_entries (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id     TEXT NOT NULL REFERENCES accounts (user_id),
    kind        TEXT   NOT NULL,
    amount      BIGINT NOT NULL,
    task_id     TEXT NOT NULL, -- empty for entries without a task
    acceptance  BIGINT NOT NULL, -- earlier acceptances of the task that were withdrawn
    request_key TEXT NOT NULL, -- of the operator's request, else empty
    reason      TEXT   NOT NULL,
    created_at  BIGINT NOT NULL
);

CREATE INDEX credit_entries_by_user ON credit_entries (user_id, id);
CREATE UNIQUE INDEX credit_entries_of_task ON credit_entries (user_id, task_id, kind, acceptance) WHERE task_id <> '';
CREATE UNIQUE INDEX credit_entries_of_request ON credit_entries (user_id, request_key) WHERE request_key <> '';

-- What was charged for the task, 0 in the free tier.
ALTER TABLE tasks ADD COLUMN price BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE tasks DROP COLUMN price;
DROP TABLE credit_entries;
DROP TABLE accounts;
