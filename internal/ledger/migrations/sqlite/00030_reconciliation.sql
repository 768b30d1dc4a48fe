-- +goose Up

-- The passes of the reconciliation.
CREATE TABLE reconcile_passes (
    id         TEXT    NOT NULL PRIMARY KEY,
    kind       TEXT    NOT NULL, -- quick or full
    status     TEXT    NOT NULL,
    dry_run    BOOLEAN NOT NULL,
    found      BIGINT  NOT NULL,
    left_over  BIGINT  NOT NULL, -- differences that remain
    started_at BIGINT  NOT NULL,
    ended_at   BIGINT  NOT NULL,
    body       TEXT    NOT NULL  -- the whole pass, JSON
);
CREATE INDEX reconcile_passes_by_time ON reconcile_passes (started_at, id);

CREATE INDEX tasks_by_deadline ON tasks (deadline_at) WHERE ended_at = 0;
CREATE INDEX conferences_open ON conferences (id) WHERE status <> 'ended' AND status <> 'deleted';

-- +goose Down
DROP INDEX conferences_open;
DROP INDEX tasks_by_deadline;
DROP TABLE reconcile_passes;
