CREATE TABLE rows(number INTEGER PRIMARY KEY, word TEXT, value REAL);
BEGIN;
INSERT INTO rows WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 400000)
    SELECT n, hex(n * 7919 % 100003), n * 0.5 FROM numbers;
COMMIT;
CREATE INDEX words ON rows(word);
UPDATE rows SET value = value + 1 WHERE number % 3 = 0;
SELECT count(DISTINCT word), sum(value), max(word) FROM rows;
SELECT sum(a.value * b.number) FROM rows a JOIN rows b ON a.word = b.word WHERE a.number < 60000;
PRAGMA integrity_check;
