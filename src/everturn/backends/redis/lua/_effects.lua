-- Shared: the effects that a session has, fields `effect:KEY` of meta; and their marks, which show that a key was never begun. A mark is
-- a digest of a key. The marks are in fields `begun:NUMBER` of about sixteen each, so that one field tells of a key, however many effects
-- there are. There is a field for each sixteen effects: when one is added, the marks of another are shared out between the two.
local MARKS = 16

-- List the keys of all effects. Ends the script if they are not as many as they should be (nil: any number will do).
local function keys_of_effects(wanted)
  local cursor, names, keys = '0', {}, {}
  repeat
    local page = call('HSCAN', META, cursor, 'MATCH', 'effect:*', 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local name = page[2][i]
      if not names[name] then names[name], keys[#keys + 1] = true, string.sub(name, 8) end
    end
  until cursor == '0'
  if wanted and #keys ~= wanted then damaged('effects') end
  return keys
end

-- How many fields of marks there are for so many effects; and half of the numbers that a field may have had before the last doubling.
local function fields_for(count)
  local fields, half = math.max(1, math.ceil(count / MARKS)), 1
  while half * 2 <= fields do half = half * 2 end
  return fields, half
end

-- The number of the field that a mark is in.
local function field_of(mark, fields, half)
  local number = tonumber(mark, 16) % (half * 2)
  return number < fields and number or number - half
end

-- The marks of these keys: a text for the number of each field.
local function marks_of(keys)
  local fields, half = fields_for(#keys)
  local lists, marks = {}, {}
  for number = 0, fields - 1 do lists[number] = {} end
  for _, key in ipairs(keys) do
    local mark = digest(key)
    local list = lists[field_of(mark, fields, half)]
    list[#list + 1] = mark
  end
  for number, list in pairs(lists) do marks[number] = table.concat(list, ' ') end
  return marks
end

local function put_marks(texts, marks)
  for number, text in pairs(marks) do
    local name = string.format('begun:%d', number)
    call('HSET', META, name, texts.sealed(name, text))
  end
end
