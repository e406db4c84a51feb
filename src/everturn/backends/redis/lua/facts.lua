-- Set facts of a session, and leave its others as they are. ARGV from 10: the names, for the change; how many a session may have;
-- then name and value of each, as JSON texts ('' as the value: remove it).
-- Field `facts` of meta: a line `"name":"value"` for each, as JSON has it, so that no line break is in it.
local lines, moved = {}, false
for line in string.gmatch(sealed_texts().field('facts', parts[7] or 0), '[^\n]+') do lines[#lines + 1] = line end
for i = 12, #ARGV, 2 do
  local name, value, place = ARGV[i] .. ':', ARGV[i + 1], nil
  for j = 1, #lines do
    if string.sub(lines[j], 1, #name) == name then place = j end
  end
  if value == '' then
    if place then table.remove(lines, place) end
    moved = moved or place
  elseif not place or lines[place] ~= name .. value then
    lines[place or #lines + 1], moved = name .. value, true
  end
end
if not moved then return refused('unchanged') end
if #lines > tonumber(ARGV[11]) then return refused('too_many_facts') end
local kind, after, plan = 'facts', state, {label = ARGV[10], facts = table.concat(lines, '\n')}
