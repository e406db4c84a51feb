-- Remove every part of a session, unless a life other than the one named is there. A tombstone stays: the fence alone, as long
-- as a request can live that was issued before. So no such request brings anything back.
-- ARGV: w if replicas are waited for; the life ('-': any).
-- The answer: "time erased entries snapshots bytes", or 'spared' if it is another life.

-- Call a command; nil if the part has another type than it was written as. It is removed like any other.
local function told(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then error(answer.err, 0) end
end

local life, ends, fence, size = unpack(told('HMGET', META, 'life', 'expires_at', 'fence', 'bytes') or {})
if is_behind(tonumber(fence)) then return at .. LATE end
if life and ARGV[2] ~= '-' and life ~= ARGV[2] then
  local over = whole(ends)
  if not (over and over <= now) then
    -- WAIT counts replicas that have all this connection wrote: an answer that wrote nothing would prove nothing.
    if ARGV[1] == 'w' then call('HSET', META, 'life', life) end
    return at .. ' spared 0 0 0'
  end
end
local entries, held = told('XLEN', LOG) or 0, told('HLEN', SNAPSHOTS) or 0
call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
call('HSET', META, 'fence', at)
call('PEXPIRE', META, REQUEST_LIFE)
return at .. ' erased ' .. entries .. ' ' .. held .. ' ' .. (string.match(size or '', '^%d+$') or 0)
