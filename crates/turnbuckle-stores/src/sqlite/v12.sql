-- Keys by which a message that is sent again is known. `at` is in milliseconds.
CREATE TABLE message_key (
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    user         TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    digest       TEXT    NOT NULL,
    turn         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (conversation, user, key)
) STRICT, WITHOUT ROWID;
