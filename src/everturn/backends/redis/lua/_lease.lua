-- Shared: the latest lease of a session, field `lease` of meta: "check token holder until", in microseconds; 0: it was released.
-- It may stand there without a session, and then expires a minute after it ended. The rules are those of core/leases.py.
local function lease_functions()
  local LONGEST_LEASE = 86460000000  -- a day and a minute: one that ends later was taken before the clock was set back

  -- Token, holder and end of a lease; nil if there never was one.
  local function lease_in(kept)
    if not kept then return nil end
    local text = string.sub(kept, 10)
    if string.sub(kept, 1, 9) ~= digest(META .. ' lease ' .. text) .. ' ' then damaged('lease') end
    local token, holder, ends = string.match(text, '^(%d+) (%S+) (%d+)$')
    return tonumber(token), holder, tonumber(ends)
  end

  local function lease_text(token, holder, ends)
    local text = string.format('%.0f %s %.0f', token, holder, ends)
    return digest(META .. ' lease ' .. text) .. ' ' .. text
  end

  local function in_force(ends, moment)
    return ends and ends > moment and ends <= moment + LONGEST_LEASE
  end

  -- Whether a lease that a change names, "token holder", is in force. Without a holder, any will do.
  local function is_claimed(claim, moment)
    local token, holder, ends = lease_in(call('HGET', META, 'lease'))
    if not in_force(ends, moment) then return false end
    local wanted, by = string.match(claim, '^(%d+) (.*)$')
    return tonumber(wanted) == token and (by == '' or by == holder)
  end

  return {lease_in = lease_in, lease_text = lease_text, in_force = in_force, is_claimed = is_claimed}
end
