-- One insert of a row of 136 bytes (4 of key, 128 of data, 4 of time stamp) per pass.
-- setup
DROP TABLE IF EXISTS load_insert;
CREATE TABLE load_insert (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  data VARCHAR(255) NOT NULL,
  ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  KEY ts (ts)
) ENGINE=InnoDB;
-- run
INSERT INTO load_insert (data) VALUES ('{text:128}');
-- teardown
DROP TABLE IF EXISTS load_insert;
