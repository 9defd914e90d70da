-- What people call their conversations.
CREATE TABLE title (
    conversation INTEGER PRIMARY KEY REFERENCES conversation (made),
    text         TEXT    NOT NULL
) STRICT;
