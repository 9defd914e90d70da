-- Which database this is: one row, written when the file is made or migrated.
CREATE TABLE database (
    id TEXT NOT NULL
) STRICT;
