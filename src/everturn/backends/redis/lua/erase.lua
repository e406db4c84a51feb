-- Remove every part of a session, unless it lives, and is another life than the one named.
-- ARGV: w if replicas are waited for; the life ('-': any); now ('': by the server's clock).
-- The answer: entries, snapshots, bytes, and whether it is another life.
local life, ends = unpack(call('HMGET', META, 'life', 'expires_at'))
if life and ARGV[2] ~= '-' and life ~= ARGV[2] then
  local now = tonumber(ARGV[3])
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local over = whole(ends)
  if not (over and over <= now) then
    if ARGV[1] == 'w' then call('HSET', META, 'life', life) end  -- as below
    return {0, 0, '0', 1}
  end
end
local entries, held = call('XLEN', LOG), call('HLEN', SNAPSHOTS)
local size = string.match(call('HGET', META, 'bytes') or '', '^%d+$') or '0'
call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
if ARGV[1] == 'w' then
  -- WAIT counts replicas that have all this connection wrote: where nothing was left to remove, write all the same.
  call('SET', META, '')
  call('UNLINK', META)
end
return {entries, held, size, 0}
