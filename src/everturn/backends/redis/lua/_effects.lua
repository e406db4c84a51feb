-- Shared: the effects that a session has, fields of meta.

-- Count them. Ends the script if they are not as many as they should be (nil: any number will do).
local function count_effects(wanted)
  local cursor, names, count = '0', {}, 0
  repeat
    local page = call('HSCAN', META, cursor, 'MATCH', 'effect:*', 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if not names[page[2][i]] then names[page[2][i]], count = true, count + 1 end
    end
  until cursor == '0'
  if wanted and count ~= wanted then damaged('effects') end
  return count
end
