-- +goose Up

-- Each process writes a row from time to time, to find out whether the database accepts writes.
CREATE TABLE write_checks (
    slot       INTEGER NOT NULL PRIMARY KEY, -- at random
    checked_at BIGINT  NOT NULL
);

-- +goose Down
DROP TABLE write_checks;
