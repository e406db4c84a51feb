-- Make a session visible that arrives. KEYS: its parts; behind them those of what is staged, if anything is.
-- ARGV: now ('': by the server's clock); whether replicas are waited for; the life, version and call where it must stand
-- ('': it must not be there); how many entries, changes and jumps are staged ('': nothing is), and how many snapshots ('': they
-- are among the rows); microseconds until it expires ('': never); forgotten versions; undo; how many fields of meta, and these;
-- rows. What is staged takes the place of what is there; rows without it are added to what is there, but for snapshots,
-- which are always all.
local facts = call('HMGET', META, unpack(FACTS))
local life, version = facts[1], facts[2]
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]
local now = tonumber(ARGV[1]) or clock
if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then return 'headless - 0 0 0' end
if life and not sound(facts) then return 'headless - 0 0 0' end
if life and facts[8] ~= '' and tonumber(facts[8]) <= now then life = nil end

if life then
  local latest = call('XRANGE', CHANGES, version .. '-0', version .. '-0')[1]
  if life ~= ARGV[3] or version ~= ARGV[4] or (latest and latest[2][4] or '') ~= ARGV[5] then
    -- WAIT counts replicas that have all this connection wrote: an answer that wrote nothing would prove nothing.
    if ARGV[2] ~= '' then call('HSET', META, 'life', life) end
    return 'exists ' .. life .. ' ' .. version .. ' 0 0 '
  end
elseif ARGV[3] ~= '' then
  return 'exists - 0 0 0 '
end
local staged, adds = ARGV[6] ~= '', life and ARGV[6] == ''
if staged and not (call('XLEN', KEYS[8]) == tonumber(ARGV[6]) and call('XLEN', KEYS[10]) == tonumber(ARGV[7])
                   and call('ZCARD', KEYS[12]) >= tonumber(ARGV[8]) and call('EXISTS', KEYS[7]) == 1)
   or ARGV[9] ~= '' and call('HLEN', KEYS[11]) ~= tonumber(ARGV[9]) then
  return 'moved - 0 0 0 '
end
local parts, forgotten = {0, 0, 0, 0, 0, 0}, ''
LIFE = life or ''
if adds then
  parts = parts_in(facts[12])
  forgotten = field('forgotten', parts[6])
end
local before = {parts[1] - call('ZCARD', OTHERS), parts[3] - call('ZCARD', JUMPS)}  -- what is lost stays missed

-- Nothing was written up to here.
local size = 0
if adds then
  size = tonumber(facts[5])
  call('UNLINK', SNAPSHOTS)
else
  before = {0, 0}
  call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
  if staged then
    for _, i in ipairs({1, 2, 3, 4, 6}) do
      if call('EXISTS', KEYS[6 + i]) == 1 then call('RENAME', KEYS[6 + i], KEYS[i]) end
    end
    size, forgotten = tonumber(call('HGET', META, 'bytes')), call('HGET', META, 'forgotten') or ''
  else
    put_front()
  end
end
if ARGV[9] ~= '' then call('RENAME', KEYS[11], SNAPSHOTS) end
if ARGV[11] ~= '' then forgotten = forgotten == '' and ARGV[11] or forgotten .. ',' .. ARGV[11] end

local fields = tonumber(ARGV[13])
for i = 14, 13 + fields, 2 do
  if ARGV[i] == 'life' then LIFE = ARGV[i + 1] end
  call('HSET', META, ARGV[i], ARGV[i + 1])
end
size = size + put_rows(14 + fields)
call('HDEL', META, 'undo', 'forgotten')
for i, text in pairs({[5] = ARGV[12], [6] = forgotten}) do
  local name, kept = i == 5 and 'undo' or 'forgotten', ''
  if text ~= '' then
    kept = sealed(name, text)
    call('HSET', META, name, kept)
  end
  parts[i] = #kept
end

local left = tonumber(ARGV[10])
local expires_at = left and string.format('%.0f', now + left) or ''
local oldest = call('XRANGE', CHANGES, '-', '+', 'COUNT', 1)[1]
parts[1], parts[2], parts[3] = call('ZCARD', OTHERS) + before[1], call('HLEN', SNAPSHOTS), call('ZCARD', JUMPS) + before[2]
parts[4] = oldest and string.match(oldest[1], '^%d+') or call('HGET', META, 'version') + 1
call('HSET', META, 'bytes', size, 'expires_at', expires_at, 'parts', table.concat(parts, ' '))
facts = call('HMGET', META, unpack(FACTS))
call('HSET', META, 'check', check_of(facts))
if left and left < 1e16 then
  local expiry = string.format('%.0f', math.floor((clock + left) / 1000) + 1)
  for i = 1, 6 do call('PEXPIREAT', KEYS[i], expiry) end
else
  for i = 1, 6 do call('PERSIST', KEYS[i]) end
end
return 'applied ' .. facts[1] .. ' ' .. facts[2] .. ' 0 0'
