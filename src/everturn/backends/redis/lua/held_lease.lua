-- Look who holds the lease of a session. Writes nothing. ARGV: now ('': by the server's clock). The answer: token, holder, until and
-- what is left, in microseconds; nothing if nobody holds it. There may be a lease without a session.
local stored = call('HMGET', META, unpack(META_FIELDS))
if stored[1] and not sound(stored) or not stored[1] and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then
  damaged('meta')
end
local now, ends = tonumber(ARGV[1]), whole(stored[8])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if stored[1] and ends and ends <= now then return {} end  -- the life is over, and its lease with it
local leases = lease_functions()
local token, holder, until_ = leases.lease_in(call('HGET', META, 'lease'))
if not leases.in_force(until_, now) then return {} end
return {string.format('%.0f', token), holder, string.format('%.0f', until_), string.format('%.0f', until_ - now)}
