-- lowest_summary: find the lowest id of a summary in a part of the log
SELECT id FROM entries WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id LIMIT 1

-- latest_summaries: load the summaries between two ids, the latest first, by the index of kinds
SELECT id - ?3, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums
  FROM entries INDEXED BY entries_not_messages WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ?1 AND ?2 ORDER BY id DESC

-- misplaced_summary: find an end of the index of kinds that is not within its reach, or a neighbour of the summaries between two ids there that is not found by its own kind and id, or leads to an entry of another kind
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM entries INDEXED BY entries_not_messages WHERE kind <> 'message' AND kind = '' AND id = 0)
            OR NOT EXISTS (SELECT 1 FROM entries INDEXED BY entries_not_messages WHERE kind <> 'message' AND kind = char(1114111) AND id = 1)
UNION ALL
SELECT 1 FROM (SELECT * FROM (SELECT kind, id FROM entries INDEXED BY entries_not_messages
                               WHERE kind <> 'message' AND kind = 'summary' AND id > ?2 ORDER BY id LIMIT 1)
               UNION ALL SELECT * FROM (SELECT kind, id FROM entries INDEXED BY entries_not_messages
                               WHERE kind <> 'message' AND kind > 'summary' ORDER BY kind, id LIMIT 1)
               UNION ALL SELECT * FROM (SELECT kind, id FROM entries INDEXED BY entries_not_messages
                               WHERE kind <> 'message' AND kind = 'summary' AND id < ?1 ORDER BY id DESC LIMIT 1)
               UNION ALL SELECT * FROM (SELECT kind, id FROM entries INDEXED BY entries_not_messages
                               WHERE kind <> 'message' AND kind < 'summary' ORDER BY kind DESC, id DESC LIMIT 1)) n
  LEFT JOIN entries e ON e.id = n.id
 WHERE e.kind IS NOT n.kind
    OR NOT EXISTS (SELECT 1 FROM entries f INDEXED BY entries_not_messages WHERE f.kind <> 'message' AND f.kind = n.kind AND f.id = n.id)

-- summaries_by_index: list the summaries between two ids by the index of kinds
SELECT id, kind FROM entries INDEXED BY entries_not_messages WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id

-- summaries_in_log: list the summaries between two ids without it
SELECT id, kind FROM entries NOT INDEXED WHERE kind = 'summary' AND id BETWEEN ? AND ? ORDER BY id
