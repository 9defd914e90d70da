-- The last request of each conversation that a model answered: the next one is compared with it.
ALTER TABLE conversation ADD COLUMN sent TEXT;
ALTER TABLE conversation ADD COLUMN sent_format INTEGER;
-- Requests that did not begin like the ones before them.
CREATE TABLE cache_break (
    place        INTEGER PRIMARY KEY,               -- oldest first
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;
CREATE INDEX cache_break_of ON cache_break (conversation, place);

-- The audit: a row for each request that reached a model, and what they refer to, each text once in a conversation.
CREATE TABLE audit_call (
    place        INTEGER PRIMARY KEY AUTOINCREMENT, -- oldest first
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    at           INTEGER NOT NULL,
    format       INTEGER NOT NULL,
    body         TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_call_of ON audit_call (conversation, place);
CREATE INDEX audit_call_at ON audit_call (at);
CREATE TABLE audit_content (
    conversation INTEGER NOT NULL REFERENCES conversation (made),
    digest       TEXT    NOT NULL,
    body         TEXT    NOT NULL,
    PRIMARY KEY (conversation, digest)
) STRICT;
-- How much of both there is: one row, so that nobody has to count.
CREATE TABLE audit_size (
    calls INTEGER NOT NULL,
    bytes INTEGER NOT NULL                          -- of the bodies of audit_content
) STRICT;
INSERT INTO audit_size (calls, bytes) VALUES (0, 0);
