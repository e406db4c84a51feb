-- Shared: the state after a version of this life; nil if it was never reached, or is no longer known.
local function state_after(asked, newest, oldest, forgotten)
  if asked == 0 then return NOTHING end
  if asked > newest then return nil end
  for first, last in string.gmatch(forgotten, '(%d+)-(%d+)') do
    if tonumber(first) <= asked and asked <= tonumber(last) then return nil end
  end
  local id = string.format('%.0f-0', asked)
  local row = call('XRANGE', CHANGES, id, id)[1]
  if not row then
    if asked >= oldest then damaged('changes') end
    return nil
  end
  local fields = row[2]
  local check, text = string.sub(fields[2], 1, 9), string.sub(fields[2], 10)
  fields[2] = text
  if check ~= change_check(asked, fields) or string.sub(fields[1], -#LIFE) ~= LIFE then damaged('changes') end
  return string.match(text, '^%d+ %d+ %d+ (.*)$')
end
