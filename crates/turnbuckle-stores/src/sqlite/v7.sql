-- Where contexts were cut: what they show of the log from then on.
CREATE TABLE cut (
    place        INTEGER PRIMARY KEY,               -- oldest first
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;
CREATE INDEX cut_of ON cut (conversation, place);
