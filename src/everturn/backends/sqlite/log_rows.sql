-- message_rows: read a stretch of the log with few columns, the kind as NULL for messages; Stretch.bindings says what ?1 to ?5 are
SELECT id - ?5, created_at, body_checksum, CAST(body AS BLOB), count, nullif(kind, 'message')
  FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND id + count > ?3 AND (?4 IS NULL OR id < ?3 OR substr(?4, id - ?3 + 1, 1) = x'01')
 ORDER BY id

-- message_rows_with_turns: read what message_rows does, and the first seq of each row's turn
SELECT id - ?5, created_at, body_checksum, CAST(body AS BLOB), count, nullif(kind, 'message'), turn
  FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND id + count > ?3 AND (?4 IS NULL OR id < ?3 OR substr(?4, id - ?3 + 1, 1) = x'01')
 ORDER BY id

-- whole_rows: read the same rows with all columns
SELECT id - ?5, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums
  FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND id + count > ?3 AND (?4 IS NULL OR id < ?3 OR substr(?4, id - ?3 + 1, 1) = x'01')
 ORDER BY id
