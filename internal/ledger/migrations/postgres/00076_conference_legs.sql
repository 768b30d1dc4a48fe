-- +goose Up

-- The stay of each participant on each unit of a conference, for its detail record.
CREATE TABLE conference_legs (
    conference_id TEXT   NOT NULL,
    id            TEXT   NOT NULL, -- of the participant's session on the unit
    identity      TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    node_id       TEXT   NOT NULL,
    epoch         BIGINT NOT NULL,
    joined_at     BIGINT NOT NULL,
    left_at       BIGINT NOT NULL, -- 0 until the participant has left; a lost copy leaves it 0
    reason        TEXT   NOT NULL,
    PRIMARY KEY (conference_id, id)
);
CREATE INDEX conference_legs_joined ON conference_legs (joined_at);

-- +goose Down
DROP TABLE conference_legs;
