-- Standing approvals: one row each.
CREATE TABLE standing (
    place     INTEGER PRIMARY KEY AUTOINCREMENT,    -- oldest first
    id        TEXT    NOT NULL UNIQUE,
    expires   INTEGER NOT NULL,
    uses_left INTEGER,                              -- null: as often as needed
    format    INTEGER NOT NULL,
    body      TEXT    NOT NULL
) STRICT;
