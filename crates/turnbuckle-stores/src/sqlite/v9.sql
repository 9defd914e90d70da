-- Summaries of the oldest turns of conversations.
CREATE TABLE summary (
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    version      INTEGER NOT NULL,                  -- from 1
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL,
    PRIMARY KEY (conversation, version)
) STRICT;
