-- +goose Up

-- The requests of operators that change something, for the audit.
CREATE TABLE operator_actions (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at BIGINT  NOT NULL,
    user_id    TEXT NOT NULL,
    action     TEXT    NOT NULL, -- operation id of the API
    target     TEXT    NOT NULL, -- path of the request
    request_id TEXT    NOT NULL,
    status     INTEGER NOT NULL  -- HTTP status of the response, 0 before it
);

CREATE INDEX operator_actions_by_user ON operator_actions (user_id, id);
CREATE INDEX operator_actions_by_action ON operator_actions (action, id);

-- +goose Down
DROP TABLE operator_actions;
