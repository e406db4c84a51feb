-- Delete entries that nothing can reach, and say which versions can no longer be read. ARGV: the life, the forgotten
-- versions ("first-last,...") as they were seen and as they are to be; then seq and bytes of each entry. What no head,
-- snapshot or undo step reaches stays out of reach while the life lasts, so nothing else needs to be as it was seen.
-- Every jump is kept: without it, a path would take what was never on it.
local seen = call('HMGET', META, 'life', 'forgotten')
if seen[1] ~= ARGV[1] or (seen[2] or '') ~= ARGV[2] then return {0, 0} end
if ARGV[3] ~= ARGV[2] then call('HSET', META, 'forgotten', ARGV[3]) end
local count, size, others = 0, 0, call('EXISTS', OTHERS) == 1
for i = 4, #ARGV, 2 do
  if call('XDEL', LOG, ARGV[i] .. '-0') == 1 then
    count, size = count + 1, size + tonumber(ARGV[i + 1])
    if others then call('ZREMRANGEBYSCORE', OTHERS, ARGV[i], ARGV[i]) end
  end
end
for i = 4, #ARGV, 2 do forget_key_of(ARGV[i]) end
if size > 0 then call('HINCRBY', META, 'bytes', -size) end
return {count, size}
