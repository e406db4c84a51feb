-- The place of an entry: a number computed from its seq, its turn and its time (`base` holds the latter two), so that an entry
-- that was swapped, or given another time, is noticed. stored_form.py has the same rule.
local function place_base(turn, time)
  return turn * 104729 + time
end

local function place_of(seq, base)
  return (seq * 7919 + base) % 1048573
end
