-- Since when somebody holds a job: a hold that begins in the future was taken before the clock was set back.
ALTER TABLE job ADD COLUMN held_from INTEGER;

-- Records in the order of their key: one tree to write to instead of two.
CREATE TABLE record_by_turn (
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    place        INTEGER NOT NULL,                  -- oldest first, within the turn
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL,                  -- a list: all of one write
    PRIMARY KEY (conversation, turn, place)
) STRICT, WITHOUT ROWID;
INSERT INTO record_by_turn SELECT conversation, turn, place, format, body FROM record;
DROP TABLE record;
ALTER TABLE record_by_turn RENAME TO record;
