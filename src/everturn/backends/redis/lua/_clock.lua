-- First in every change: takes the time, and ends the script if the request is too late.
-- The last two of ARGV: when the request was issued, and the moment after which it must not be applied: microseconds on
-- this server's clock, as its replies told it (docs/decisions/020-late-requests.md). '' as the second is for tests: the
-- first is then the time, whatever this server's clock says. Every answer begins with the time.
local not_after, issued = table.remove(ARGV), tonumber(table.remove(ARGV))
local LATE, REQUEST_LIFE = ' late - 0 0 0', 60000  -- milliseconds, as in server_clock.py

local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local now = not_after == '' and issued or server_time()
local at = string.format('%.0f', now)
-- A request issued later than now is older than a clock that was set back: its age is unknown, so it counts as late.
if not_after ~= '' and (now > tonumber(not_after) or now < issued) then return at .. LATE end

-- Say whether the request was issued before the session's fence. A fence ahead of now is of a clock that was set back.
local function is_behind(fence)
  return fence and issued < fence and fence <= now
end
