-- Delete entries and jumps that nothing can reach, and note the versions that can no longer be read. ARGV: the life; the
-- forgotten versions ("first-last,...") as they were seen and as they are to be; how many jumps, and the seq of each; then seq
-- and bytes of each entry. What no head, snapshot or undo step reaches stays out of reach while the life lasts, so nothing else
-- needs to be as it was seen. A jump that is on a path to any of them is kept, whatever became of its entries: without it, the
-- path would take what was never on it.
local stored = call('HMGET', META, unpack(META_FIELDS))
if stored[1] ~= ARGV[1] or not sound(stored) then return {0, 0} end
LIFE = stored[1]
local parts, texts = parts_in(stored[12]), sealed_texts()
if texts.field('forgotten', parts[6]) ~= ARGV[2] then return {0, 0} end
local count, size, jumps = 0, 0, tonumber(ARGV[4])
for i = 5, 4 + jumps do parts[3] = parts[3] - call('ZREMRANGEBYSCORE', JUMPS, ARGV[i], ARGV[i]) end
for i = 5 + jumps, #ARGV, 2 do
  if call('XDEL', LOG, ARGV[i] .. '-0') == 1 then
    count, size = count + 1, size + tonumber(ARGV[i + 1])
    if parts[1] > 0 then parts[1] = parts[1] - call('ZREMRANGEBYSCORE', OTHERS, ARGV[i], ARGV[i]) end
  end
end
if ARGV[3] ~= ARGV[2] then
  local forgotten = texts.sealed('forgotten', ARGV[3])
  parts[6] = #forgotten
  call('HSET', META, 'forgotten', forgotten)
end
stored[5], stored[12] = math.max(0, tonumber(stored[5]) - size), table.concat(parts, ' ')
call('HSET', META, 'bytes', stored[5], 'parts', stored[12], 'check', (check_of(stored)))
local keys = key_functions()
for i = 5 + jumps, #ARGV, 2 do keys.forget_key_of(ARGV[i]) end
return {count, size}
