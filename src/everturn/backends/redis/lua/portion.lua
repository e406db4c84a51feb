-- Read the next entries of the log, until their values reach so many bytes. Writes nothing.
-- ARGV: after this seq, up to that, at most so many, and bytes. The answer: whether that is all, and the entries.
local FEW = 16  -- entries looked at together: they may be of any size
local after, last, most, budget = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local entries, size = {}, 0
while after < last and #entries < most and size < budget do
  local found = redis.call('XRANGE', KEYS[2], (after + 1) .. '-0', last .. '-0', 'COUNT', math.min(FEW, most - #entries))
  if #found == 0 then break end
  for i = 1, #found do
    entries[#entries + 1] = found[i]
    size = size + #found[i][2][2]
  end
  after = tonumber(string.match(found[#found][1], '^%d+'))
end
return {(#entries < most and size < budget or after == last) and 1 or 0, entries}
