-- First in every change: takes the time, and ends the script if the request is too late.
-- The last two of ARGV: when the request was issued, and the moment after which it must not be applied: microseconds on
-- this server's clock, as its replies told it (docs/decisions/020-late-requests.md). '' as the second is for tests: the
-- first is then the time, whatever this server's clock says. Every answer begins with the time.
local not_after, issued = table.remove(ARGV), tonumber(table.remove(ARGV))
local LATE, REQUEST_LIFE = ' late - 0 0 0', 60000  -- milliseconds, as in server_clock.py

-- The server's time as text, in microseconds.
local function server_time()
  return string.format('%s%06d', unpack(redis.call('TIME')))
end

local at = not_after == '' and string.format('%.0f', issued) or server_time()
local now = tonumber(at)
-- A request issued later than now is older than a clock that was set back: its age is unknown, so it counts as late.
if not_after ~= '' and (now > tonumber(not_after) or now < issued) then return at .. LATE end

-- Say whether the request was issued before the session's fence, which stands in `meta`. A fence ahead of now was set by a
-- clock that was set back since, or by another server: which requests are behind it is not known. It is set to now, and
-- whatever was issued before is late.
local function is_behind(fence, meta)
  if fence and fence > now then
    redis.call('HSET', meta or KEYS[1], 'fence', at)
    return true
  end
  return fence and issued < fence
end
