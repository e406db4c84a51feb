-- Make a session visible that arrives. KEYS: its parts; behind them those of what is staged, if anything is.
-- ARGV: whether replicas are waited for; the life, version and call where it must stand ('': it must not be there);
-- how many entries and changes are staged ('': nothing is); microseconds until it expires ('': never); jumps; forgotten
-- versions; how many fields of meta, and these; how many parts of snapshots, and these; rows.
-- What is staged takes the place of what is there; rows without it are added to what is there.
local facts = call('HMGET', META, 'life', 'version', 'last_seq', 'bytes', 'expires_at', 'jumps', 'forgotten', 'fence')
local life, version, fence = facts[1], facts[2], facts[8]
if is_behind(tonumber(fence)) then return at .. LATE end
if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS) > 0 then return at .. ' headless - 0 0 0' end
if life and not (whole(facts[3]) and whole(facts[4]) and (facts[5] == '' or whole(facts[5]))) then
  return at .. ' headless - 0 0 0'
end
if life and facts[5] ~= '' and tonumber(facts[5]) <= now then life = nil end

if life then
  local latest = call('XRANGE', CHANGES, version .. '-0', version .. '-0')[1]
  if life ~= ARGV[2] or version ~= ARGV[3] or (latest and latest[2][4] or '') ~= ARGV[4] then
    -- WAIT counts replicas that have all this connection wrote: an answer that wrote nothing would prove nothing.
    if ARGV[1] ~= '' then call('HSET', META, 'life', life) end
    return at .. ' exists ' .. life .. ' ' .. version .. ' 0 0 '
  end
elseif ARGV[2] ~= '' then
  return at .. ' exists - 0 0 0 '
end
local staged = ARGV[5] ~= ''
if staged and not (call('XLEN', KEYS[7]) == tonumber(ARGV[5]) and call('XLEN', KEYS[9]) == tonumber(ARGV[6])
                   and call('EXISTS', KEYS[6]) == 1) then
  return at .. ' moved - 0 0 0 '
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
  if fence then call('HSET', META, 'fence', fence) end
end
for seq, after in string.gmatch(ARGV[8], '(%d+):(%d+)') do
  if tonumber(seq) > last_seq then jumps = jumps .. seq .. ':' .. after .. ',' end
end
if ARGV[9] ~= '' then forgotten = forgotten == '' and ARGV[9] or forgotten .. ',' .. ARGV[9] end

local fields = tonumber(ARGV[10])
local place = 11 + fields
local snapshots = tonumber(ARGV[place])
call('HDEL', META, 'undo')
for i = 11, place - 1, 2 do call('HSET', META, ARGV[i], ARGV[i + 1]) end
for i = place + 1, place + snapshots, 2 do call('HSET', SNAPSHOTS, ARGV[i], ARGV[i + 1]) end
size = size + put_rows(META, LOG, OTHERS, CHANGES, place + 1 + snapshots)
call('HSET', META, 'bytes', size)
if jumps ~= '' then call('HSET', META, 'jumps', jumps) end
if forgotten ~= '' then call('HSET', META, 'forgotten', forgotten) end

local left = tonumber(ARGV[7])
if left then call('HSET', META, 'expires_at', string.format('%.0f', now + left)) else call('HSET', META, 'expires_at', '') end
if left and left < 1e16 then
  local clock = not_after == '' and server_time() or now
  local expiry = string.format('%.0f', math.floor((clock + left) / 1000) + 1)
  for i = 1, 5 do call('PEXPIREAT', KEYS[i], expiry) end
else
  for i = 1, 5 do call('PERSIST', KEYS[i]) end
end
facts = call('HMGET', META, 'life', 'version')
return at .. ' applied ' .. facts[1] .. ' ' .. facts[2] .. ' 0 0'
