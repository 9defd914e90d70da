-- What the tokens of models come to, compared with the estimates.
CREATE TABLE calibration (
    model  TEXT    PRIMARY KEY,
    format INTEGER NOT NULL,
    body   TEXT    NOT NULL
) STRICT;
