-- Since when somebody holds a job: a hold that begins in the future was taken before the clock was set back.
ALTER TABLE job ADD COLUMN held_from INTEGER;
