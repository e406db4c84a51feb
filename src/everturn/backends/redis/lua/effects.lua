-- List the effects of a session. Writes nothing. ARGV: now ('': by the server's clock). The answer: life, version, the token of
-- the lease that is held (0: none), then name and text of each effect. The life is '' if there is no session.
local stored = call('HMGET', META, unpack(META_FIELDS))
if not stored[1] then
  if call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then damaged('meta') end
  return {'', '0', '0'}
end
if not sound(stored) then damaged('meta') end
local now, ends = tonumber(ARGV[1]), whole(stored[8])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if ends and ends <= now then return {'', '0', '0'} end
local leases = lease_functions()
local token, _, until_ = leases.lease_in(call('HGET', META, 'lease'))
keys_of_effects(parts_in(stored[12])[8] or 0)
local answer = {stored[1], stored[2], leases.in_force(until_, now) and token .. '' or '0'}
local cursor = '0'
repeat
  local page = call('HSCAN', META, cursor, 'MATCH', 'effect:*', 'COUNT', 1000)
  cursor = page[1]
  for _, part in ipairs(page[2]) do answer[#answer + 1] = part end
until cursor == '0'
return answer
