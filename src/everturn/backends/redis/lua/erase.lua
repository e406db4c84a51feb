-- Remove every part of a session, unless a life other than the one named is there. A tombstone stays as long as a request can
-- live that was issued before: the fence, which holds up first attempts, and in `calls` the receipts of the changes that went,
-- by their call ids, for retries (_change.lua). So no request brings anything back. There is no text in it.
-- ARGV: w if replicas are waited for; the life ('-': any); the version that it must be at ('': any).
-- The answer: "time erased entries snapshots bytes", or 'spared' if it is another life.

local MOST_CALLS = 100000  -- bytes: more than those of the 1,024 changes that are remembered at least

-- Call a command; nil if the part has another type than it was written as. It is removed like any other.
local function told(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then error(answer.err, 0) end
end

local life, ends, fence, size, before, version =
  unpack(told('HMGET', META, 'life', 'expires_at', 'fence', 'bytes', 'calls', 'version') or {})
-- Where nothing is left, nothing can be removed too late: this request did it, if a proxy sent it twice, or another.
local is_there = life or call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0
if is_there and is_behind(tonumber(fence)) then return at .. LATE end
if life and ARGV[2] ~= '-' and (life ~= ARGV[2] or (ARGV[3] ~= '' and version ~= ARGV[3])) then
  local over = whole(ends)
  if not (over and over <= now) then
    -- WAIT counts replicas that have all this connection wrote: an answer that wrote nothing would prove nothing.
    if ARGV[1] == 'w' then call('HSET', META, 'life', life) end
    return at .. ' spared 0 0 0'
  end
end
local entries, held = told('XLEN', LOG) or 0, told('HLEN', SNAPSHOTS) or 0
local calls = {}
for _, row in ipairs(told('XREVRANGE', CHANGES, '+', '-', 'COUNT', 1024) or {}) do
  local fields = row[2]
  local first, count, made, messages = string.match(fields[2] or '', '^%x+ (%d+) (%d+) (%d+) %d+ %d+ %d+ (%d+)')
  if messages and fields[4] then
    calls[#calls + 1] = fields[4] .. ' ' .. fields[1] .. ' ' .. string.match(row[1], '^%d+') .. ' ' .. first .. ' '
      .. count .. ' ' .. made .. ' ' .. messages .. ';'
  end
end
calls = string.sub(table.concat(calls) .. (before or ''), 1, MOST_CALLS)
call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
call('HSET', META, 'fence', at)
if calls ~= '' then call('HSET', META, 'calls', calls) end
call('PEXPIRE', META, REQUEST_LIFE)
return at .. ' erased ' .. entries .. ' ' .. held .. ' ' .. (string.match(size or '', '^%d+$') or 0)
