-- Add rows to a copy that nobody sees yet. KEYS: its parts, as a session's; the meta of the session it will be. ARGV: milliseconds until it is forgotten; versions
-- that cannot be read any more ("first-last,..."); rows. In its meta stand these versions, the bytes of its bodies, and
-- the keys of its changes.
if is_behind(tonumber(redis.call('HGET', KEYS[6], 'fence') or '')) then return at .. LATE end
if redis.call('EXISTS', KEYS[1]) == 0 then put_front(KEYS[1]) end
redis.call('HINCRBY', KEYS[1], 'bytes', put_rows(KEYS[1], KEYS[2], KEYS[3], KEYS[4], 3))
if ARGV[2] ~= '' then
  local forgotten = redis.call('HGET', KEYS[1], 'forgotten')
  redis.call('HSET', KEYS[1], 'forgotten', forgotten and forgotten .. ',' .. ARGV[2] or ARGV[2])
end
for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
return at .. ' staged'
