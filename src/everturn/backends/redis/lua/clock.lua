-- First in every script that changes something: the time, and whether the request is too late for it.
-- The last two of ARGV: when the request was issued, and the moment after which it must not be applied: microseconds on
-- this server's clock, as its replies told it (docs/decisions/020-late-requests.md). '' as the second is for tests: the
-- first is then the time, whatever this server's clock says. Every answer begins with the time.
local not_after, issued = table.remove(ARGV), tonumber(table.remove(ARGV))
local LATE, REQUEST_LIFE = ' late - 0 0 0', 60000  -- milliseconds: server_clock.py's

local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local now = not_after == '' and issued or server_time()
local at = string.format('%.0f', now)
-- One that was issued later than now is from before this clock was set back: how old it is cannot be told.
if not_after ~= '' and (now > tonumber(not_after) or now < issued) then return at .. LATE end

-- Whether the request was issued before the session's fence. One that lies ahead is of a clock that was set back since.
local function is_behind(fence)
  return fence and issued < fence and fence <= now
end
