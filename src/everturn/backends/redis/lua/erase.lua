-- Remove every part of a session, unless it lives, and is another life than the one named. What is left is a tombstone:
-- the fence alone, for as long as a request lives that was issued before. No such request brings anything back.
-- ARGV: w if replicas are waited for; the life ('-': any).
-- The answer: "time erased entries snapshots bytes", or 'spared' if it is another life.
local life, ends, fence = unpack(call('HMGET', META, 'life', 'expires_at', 'fence'))
if is_behind(tonumber(fence)) then return at .. LATE end
if life and ARGV[2] ~= '-' and life ~= ARGV[2] then
  local over = whole(ends)
  if not (over and over <= now) then
    -- WAIT counts replicas that have all this connection wrote: an answer that wrote nothing would prove nothing.
    if ARGV[1] == 'w' then call('HSET', META, 'life', life) end
    return at .. ' spared 0 0 0'
  end
end
local entries, held = call('XLEN', LOG), call('HLEN', SNAPSHOTS)
local size = string.match(call('HGET', META, 'bytes') or '', '^%d+$') or '0'
call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
call('HSET', META, 'fence', at)
call('PEXPIRE', META, REQUEST_LIFE)
return at .. ' erased ' .. entries .. ' ' .. held .. ' ' .. size
