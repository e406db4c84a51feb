-- Make a session visible that arrives. KEYS: its parts; behind them those of what is staged, if anything is.
-- ARGV: now ('': by the server's clock); whether replicas are waited for; the life, version and call where it must stand
-- ('': it must not be there); how many entries and changes are staged ('': nothing is); microseconds until it expires
-- ('': never); jumps; forgotten versions; how many fields of meta, and these; how many parts of snapshots, and these; rows.
-- What is staged takes the place of what is there; rows without it are added to what is there.
local facts = call('HMGET', META, 'life', 'version', 'last_seq', 'bytes', 'expires_at', 'jumps', 'forgotten')
local life, version = facts[1], facts[2]
local time = call('TIME')
local clock = time[1] * 1000000 + time[2]
local now = tonumber(ARGV[1]) or clock
if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS) > 0 then return 'headless - 0 0 0' end
if life and not (whole(facts[3]) and whole(facts[4]) and (facts[5] == '' or whole(facts[5]))) then
  return 'headless - 0 0 0'
end
if life and facts[5] ~= '' and tonumber(facts[5]) <= now then life = nil end

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
local staged = ARGV[6] ~= ''
if staged and not (call('XLEN', KEYS[7]) == tonumber(ARGV[6]) and call('XLEN', KEYS[9]) == tonumber(ARGV[7])
                   and call('EXISTS', KEYS[6]) == 1) then
  return 'moved - 0 0 0 '
end

-- Nothing was written up to here.
local last_seq, size, jumps, forgotten = 0, 0, '', ''
if life and not staged then
  last_seq, size, jumps, forgotten = tonumber(facts[3]), tonumber(facts[4]), facts[6] or '', facts[7] or ''
  call('UNLINK', SNAPSHOTS)
else
  call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS)
  if staged then
    for i = 1, 4 do
      if call('EXISTS', KEYS[5 + i]) == 1 then call('RENAME', KEYS[5 + i], KEYS[i]) end
    end
    size, forgotten = tonumber(call('HGET', META, 'bytes')), call('HGET', META, 'forgotten') or ''
  else
    put_front(META)
  end
end
for seq, after in string.gmatch(ARGV[9], '(%d+):(%d+)') do
  if tonumber(seq) > last_seq then jumps = jumps .. seq .. ':' .. after .. ',' end
end
if ARGV[10] ~= '' then forgotten = forgotten == '' and ARGV[10] or forgotten .. ',' .. ARGV[10] end

local fields = tonumber(ARGV[11])
local at = 12 + fields
local snapshots = tonumber(ARGV[at])
call('HDEL', META, 'undo')
for i = 12, at - 1, 2 do call('HSET', META, ARGV[i], ARGV[i + 1]) end
for i = at + 1, at + snapshots, 2 do call('HSET', SNAPSHOTS, ARGV[i], ARGV[i + 1]) end
size = size + put_rows(META, LOG, OTHERS, CHANGES, at + 1 + snapshots)
call('HSET', META, 'bytes', size)
if jumps ~= '' then call('HSET', META, 'jumps', jumps) end
if forgotten ~= '' then call('HSET', META, 'forgotten', forgotten) end

local left = tonumber(ARGV[8])
if left then call('HSET', META, 'expires_at', string.format('%.0f', now + left)) else call('HSET', META, 'expires_at', '') end
if left and left < 1e16 then
  local expiry = string.format('%.0f', math.floor((clock + left) / 1000) + 1)
  for i = 1, 5 do call('PEXPIREAT', KEYS[i], expiry) end
else
  for i = 1, 5 do call('PERSIST', KEYS[i]) end
end
facts = call('HMGET', META, 'life', 'version')
return 'applied ' .. facts[1] .. ' ' .. facts[2] .. ' 0 0'
