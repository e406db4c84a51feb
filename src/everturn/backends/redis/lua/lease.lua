-- Take, renew or release the lease of a session. ARGV: "holder action", action, holder, token (0: whichever), microseconds.
-- It is no change: the version and the expiry stay. The answer: "time status token until left".
local stored, kept = call('HMGET', META, unpack(META_FIELDS)), call('HGET', META, 'lease')
local life, ends_at = stored[1], stored[8]
-- Checked first: a damaged expiry must not remove a session.
if life and not sound(stored) or not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then damaged('meta') end
local action, holder, wanted, lasts = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if life and whole(ends_at) and tonumber(ends_at) <= now then
  -- The life is over, and its lease with it.
  if action ~= 'take' then return at .. ' lease_lost 0 0 0' end
  call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS)
  life, kept = nil, nil
end
local leases = lease_functions()
local token, by, ends = leases.lease_in(kept)
local held = leases.in_force(ends, now)
if action == 'take' then
  if held and by ~= holder then
    return at .. string.format(' lease_held %.0f %.0f %.0f', token, ends, ends - now)
  end
  if not held then token = (token or 0) + 1 end
  ends = now + lasts
elseif by ~= holder or (wanted ~= 0 and wanted ~= token) or (action == 'renew' and not held) then
  return at .. ' lease_lost 0 0 0'
else
  ends = action == 'renew' and now + lasts or 0
end
call('HSET', META, 'lease', leases.lease_text(token, holder, ends))
if not life then
  -- Nothing else is here, but perhaps a tombstone: it must not go before the lease does.
  local left = math.max(math.floor((ends - now) / 1000), 0) + REQUEST_LIFE
  if call('PTTL', META) < left then call('PEXPIRE', META, string.format('%.0f', left)) end
end
return at .. string.format(' applied %.0f %.0f %.0f', token, ends, math.max(ends - now, 0))
