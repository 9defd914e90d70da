-- Conversations that must not be deleted.
CREATE TABLE hold (
    conversation INTEGER PRIMARY KEY REFERENCES conversation (made),
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL                   -- since when, and by whom
) STRICT;

-- What stays of deleted conversations: the id cannot be used again.
CREATE TABLE tombstone (
    id     TEXT    PRIMARY KEY,
    at     INTEGER NOT NULL,
    format INTEGER NOT NULL,                        -- of `author`
    author TEXT    NOT NULL                         -- who deleted it
) STRICT;

-- What may still have text of them: one row for each place that is not erased yet.
CREATE TABLE unerased (
    place INTEGER PRIMARY KEY,                      -- in the order in which they were noted
    id    TEXT NOT NULL REFERENCES tombstone (id),
    name  TEXT NOT NULL
) STRICT;
CREATE INDEX unerased_of ON unerased (id);

-- Who deleted, held, released, insisted, accepted, revoked, or read a conversation of another.
CREATE TABLE act (
    place  INTEGER PRIMARY KEY AUTOINCREMENT,       -- oldest first
    format INTEGER NOT NULL,
    body   TEXT    NOT NULL
) STRICT;
