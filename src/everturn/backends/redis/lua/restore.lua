-- Make a session visible that arrives from elsewhere, in one step. KEYS: its parts; then the staged parts, if any.
-- ARGV: whether replicas are waited for; the life, version and call where it must stand ('': it must not be there); how many
-- entries, changes and jumps are staged ('': nothing is), and how many snapshots ('': they are among the rows); microseconds
-- until it expires ('': never); forgotten versions; undo; how many fields of meta, and these; rows.
-- Staged rows replace the session that is there. Rows that were not staged are added to it; only snapshots are always
-- replaced.
local stored = call('HMGET', META, unpack(META_FIELDS))
local life, version, fence = stored[1], stored[2], stored[14]
if is_behind(tonumber(fence)) then return at .. LATE end
if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 or life and not sound(stored) then
  return at .. ' damaged - 0 0 0'
end
if life and stored[8] ~= '' and tonumber(stored[8]) <= now then life = nil end

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
local staged, adds = ARGV[5] ~= '', life and ARGV[5] == ''
if staged and not (call('XLEN', KEYS[8]) == tonumber(ARGV[5]) and call('XLEN', KEYS[10]) == tonumber(ARGV[6])
                   and call('ZCARD', KEYS[12]) == tonumber(ARGV[7]) and call('EXISTS', KEYS[7]) == 1)
   or ARGV[8] ~= '' and call('HLEN', KEYS[11]) ~= tonumber(ARGV[8]) then
  return at .. ' moved - 0 0 0 '
end
local parts, forgotten, size, lost = {0, 0, 0, 0, 0, 0}, '', 0, {0, 0}
local texts = sealed_texts()
if adds then
  LIFE, parts, size = life, parts_in(stored[12]), tonumber(stored[5])
  forgotten = texts.field('forgotten', parts[6])
  lost = {parts[1] - call('ZCARD', OTHERS), parts[3] - call('ZCARD', JUMPS)}  -- these stay missing, so that reads still notice
end

-- Nothing was written up to here.
local calls, lease = fence and call('HGET', META, 'calls'), call('HGET', META, 'lease')
if adds then
  call('UNLINK', SNAPSHOTS)
else
  call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
  if staged then
    for _, i in ipairs({1, 2, 3, 4, 6}) do
      if call('EXISTS', KEYS[6 + i]) == 1 then call('RENAME', KEYS[6 + i], KEYS[i]) end
    end
    size, forgotten = tonumber(call('HGET', META, 'bytes')), call('HGET', META, 'forgotten') or ''
  else
    put_front()
  end
  if fence then call('HSET', META, 'fence', fence) end
  if calls then call('HSET', META, 'calls', calls) end
end
if ARGV[8] ~= '' then call('RENAME', KEYS[11], SNAPSHOTS) end
if ARGV[10] ~= '' then forgotten = forgotten == '' and ARGV[10] or forgotten .. ',' .. ARGV[10] end

call('HDEL', META, 'facts')
local fields = tonumber(ARGV[12])
for i = 13, 12 + fields, 2 do call('HSET', META, ARGV[i], ARGV[i + 1]) end
LIFE = call('HGET', META, 'life')
if lease and (not life or life == LIFE) then call('HSET', META, 'lease', lease) end  -- it holds on in the same life, or in a new one
size = size + put_rows(13 + fields)
for i, name in pairs({[5] = 'undo', [6] = 'forgotten'}) do
  local text = i == 5 and ARGV[11] or forgotten
  local kept = text ~= '' and texts.sealed(name, text) or ''
  if kept ~= '' then call('HSET', META, name, kept) else call('HDEL', META, name) end
  parts[i] = #kept
end

local left = tonumber(ARGV[9])
local oldest = call('XRANGE', CHANGES, '-', '+', 'COUNT', 1)[1]
parts[1], parts[2], parts[3] = call('ZCARD', OTHERS) + lost[1], call('HLEN', SNAPSHOTS), call('ZCARD', JUMPS) + lost[2]
local keys = keys_of_effects()
if #keys > 0 then put_marks(texts, marks_of(keys)) end
parts[8] = #keys > 0 and #keys or nil
parts[7] = call('HEXISTS', META, 'facts') == 1 and #call('HGET', META, 'facts') or parts[8] and 0 or nil
if not adds then parts[4] = oldest and string.match(oldest[1], '^%d+') or call('HGET', META, 'version') + 1 end
call('HSET', META, 'bytes', size, 'expires_at', left and string.format('%.0f', now + left) or '',
     'parts', table.concat(parts, ' '))
stored = call('HMGET', META, unpack(META_FIELDS))
call('HSET', META, 'check', (check_of(stored)))
if left and left < 1e16 then
  -- By the server's clock, because the server expires them.
  local clock = not_after == '' and tonumber(server_time()) or now
  local expiry = string.format('%.0f', math.floor((clock + left) / 1000) + 1)
  for i = 1, 6 do call('PEXPIREAT', KEYS[i], expiry) end
else
  for i = 1, 6 do call('PERSIST', KEYS[i]) end
end
return at .. ' applied ' .. stored[1] .. ' ' .. stored[2] .. ' 0 0'
