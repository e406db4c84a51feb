-- Add rows to a copy that is not visible yet. KEYS: its parts, as a session's; the meta of the session it will be. ARGV:
-- milliseconds until it is forgotten; its life; versions that cannot be read any more ("first-last,..."); rows. In its meta
-- stand these versions, the bytes of its bodies, and the keys of its changes.
if is_behind(tonumber(call('HGET', KEYS[7], 'fence') or ''), KEYS[7]) then return at .. LATE end
LIFE = ARGV[2]
if call('EXISTS', META) == 0 then put_front() end
call('HINCRBY', META, 'bytes', put_rows(4))
if ARGV[3] ~= '' then
  local forgotten = call('HGET', META, 'forgotten')
  call('HSET', META, 'forgotten', forgotten and forgotten .. ',' .. ARGV[3] or ARGV[3])
end
for i = 1, 6 do call('PEXPIRE', KEYS[i], ARGV[1]) end
return at .. ' staged'
