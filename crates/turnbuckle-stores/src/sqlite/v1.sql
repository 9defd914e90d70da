-- Every body is JSON and carries the format it was written in.

CREATE TABLE conversation (
    made        INTEGER PRIMARY KEY AUTOINCREMENT,  -- orders the list
    id          TEXT    NOT NULL UNIQUE,
    format      INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    seq         INTEGER NOT NULL DEFAULT 0,         -- of the last event
    epoch       INTEGER NOT NULL DEFAULT 0,
    writer      TEXT,                               -- null: nobody
    lease_until INTEGER,                            -- milliseconds since 1970
    host        TEXT,                               -- where the writer's process is; null: not known
    pid         INTEGER,
    started     INTEGER                             -- when that process started: ids are given out again
) STRICT;

CREATE TABLE event (
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    seq          INTEGER NOT NULL,
    turn         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    type         TEXT    NOT NULL,
    format       INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,                  -- estimated
    body         TEXT    NOT NULL,
    PRIMARY KEY (conversation, seq)
) STRICT;

CREATE TABLE inbox (
    place        INTEGER PRIMARY KEY AUTOINCREMENT, -- oldest first
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;
CREATE INDEX inbox_of ON inbox (conversation, turn);

CREATE TABLE beside (
    conversation INTEGER PRIMARY KEY REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;

CREATE TABLE record (
    place        INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;
CREATE INDEX record_of ON record (conversation, turn);

CREATE TABLE job (
    place        INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    hook         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL,
    UNIQUE (conversation, turn, hook, kind)
) STRICT;
