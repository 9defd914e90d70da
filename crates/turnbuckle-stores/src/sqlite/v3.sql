-- The call that an inbox item answers. The first answer to a call that is stored wins: the index refuses every other one.
ALTER TABLE inbox ADD COLUMN answers TEXT;
-- Of several answers to one call that an older program stored, the oldest counts, as it did when they were taken up.
UPDATE inbox SET answers = json_extract(body, '$.says.answer.call')
 WHERE place IN (SELECT min(place) FROM inbox WHERE opens = 0 AND json_valid(body)
                  GROUP BY conversation, json_extract(body, '$.says.answer.call'));
CREATE UNIQUE INDEX inbox_answers ON inbox (conversation, answers) WHERE answers IS NOT NULL;
