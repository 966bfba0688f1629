-- Whether a reported state of a rank (t) replaces the one in its row (r): an end is final within one restart, and after the
-- attempt's end only an end may still be recorded.
-- The batch was read against the row as it was (translate.py); the reconciler may have closed the attempt since then.
--
-- Fragments:
--   {ended}  states of a rank that has ended, as a list
(t.state IS NOT NULL AND CASE WHEN won.is_over THEN r.state NOT IN ({ended}) AND t.state IN ({ended})
    ELSE r.state NOT IN ({ended}) OR t.restart > r.restarts END)
