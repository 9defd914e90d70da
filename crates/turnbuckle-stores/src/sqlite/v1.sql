-- Every body is JSON and carries the format it was written in. Times are milliseconds since 1970.

CREATE TABLE conversation (
    made        INTEGER PRIMARY KEY AUTOINCREMENT,  -- orders the list; by it all tables know a conversation
    id          TEXT    NOT NULL UNIQUE,
    format      INTEGER NOT NULL,                   -- of `owner`
    owner       TEXT    NOT NULL,
    opened      INTEGER NOT NULL,
    written     INTEGER NOT NULL,                   -- when the last event was
    seq         INTEGER NOT NULL DEFAULT 0,         -- of the last event
    model_calls INTEGER NOT NULL DEFAULT 0,         -- of the turns that ended
    tokens      INTEGER NOT NULL DEFAULT 0,         -- of the turns that joined history
    standing    TEXT    NOT NULL DEFAULT 'idle',    -- idle, running, waiting
    due         INTEGER,                            -- when a turn that nobody drives must be taken up; null: none is open
    epoch       INTEGER NOT NULL DEFAULT 0,         -- grows with every claim
    writer      TEXT,                               -- null: nobody
    lease_until INTEGER,
    process     TEXT,                               -- the writer's: host, number, start; null: not known
    beside      TEXT,                               -- what the open turn needs to go on
    beside_format INTEGER
) STRICT;
CREATE INDEX conversation_due ON conversation (due) WHERE due IS NOT NULL;

CREATE TABLE event (
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    seq          INTEGER NOT NULL,
    turn         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    type         TEXT    NOT NULL,
    call         TEXT,                              -- the call that the event brings into the log
    format       INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,                  -- estimated
    body         TEXT    NOT NULL,
    PRIMARY KEY (conversation, seq)
) STRICT;
CREATE INDEX event_call ON event (conversation, call) WHERE call IS NOT NULL;

CREATE TABLE inbox (
    place        INTEGER PRIMARY KEY AUTOINCREMENT, -- oldest first
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    letter       TEXT    NOT NULL,
    opens        INTEGER NOT NULL,                  -- 1: a message, which opens a turn; 0: an order for the writer
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;
CREATE INDEX inbox_of ON inbox (conversation, letter);

CREATE TABLE record (
    place        INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL                   -- a list: all of one write
) STRICT;
CREATE INDEX record_of ON record (conversation, turn);

CREATE TABLE job (
    place        INTEGER PRIMARY KEY AUTOINCREMENT, -- oldest first
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    turn         TEXT    NOT NULL,
    hook         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    due          INTEGER,                           -- null: parked
    held_until   INTEGER,                           -- somebody works on it; null: nobody
    process      TEXT,                              -- the holder's
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL,
    UNIQUE (conversation, turn, hook, kind)
) STRICT;
CREATE INDEX job_due ON job (due) WHERE due IS NOT NULL;
