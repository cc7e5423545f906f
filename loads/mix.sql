-- Each pass is a transaction of three reads, an update and an insert, on 1,000 rows that all threads share.
-- setup
DROP TABLE IF EXISTS load_mix, load_mix_log;
CREATE TABLE load_mix (id INT UNSIGNED NOT NULL PRIMARY KEY, amount BIGINT NOT NULL, note VARCHAR(120) NOT NULL) ENGINE=InnoDB;
CREATE TABLE load_mix_log (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  thread INT UNSIGNED NOT NULL,
  pass BIGINT UNSIGNED NOT NULL,
  item INT UNSIGNED NOT NULL
) ENGINE=InnoDB;
INSERT INTO load_mix (id, amount, note)
  WITH digits (d) AS (
    SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL
    SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
  )
  SELECT 100 * a.d + 10 * b.d + c.d + 1, 0, REPEAT('x', 100) FROM digits a, digits b, digits c;
-- run
BEGIN;
SELECT note FROM load_mix WHERE id = {random:1-1000};
SELECT note FROM load_mix WHERE id = {random:1-1000};
SELECT SUM(amount) FROM load_mix WHERE id BETWEEN {random:1-450} AND {random:451-500};
UPDATE load_mix SET amount = amount + 1 WHERE id = {random:1-1000};
INSERT INTO load_mix_log (thread, pass, item) VALUES ({thread}, {pass}, {random:1-1000});
COMMIT;
-- teardown
DROP TABLE IF EXISTS load_mix, load_mix_log;
