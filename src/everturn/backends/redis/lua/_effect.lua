-- Shared: effects, each a field `effect:<key>` of meta. Sealed, it has one line "status attempt began ended token at ended_at by",
-- then request, result, error and note, each a line of JSON, empty for none. The rules are those of core/plan_change.py.
local EFFECT, texts = 'effect:' .. ARGV[10], sealed_texts()

local marks_with_it  -- the fields of marks that change when the effect begins for the first time

-- The marks in a field; nil if it is not there, or not as it was written.
local function marks_in(number)
  local name = string.format('begun:%d', number)
  local kept = call('HGET', META, name)
  local text = kept and string.sub(kept, 10)
  return text and kept == texts.sealed(name, text) and text
end

-- The fields of marks that change when an effect begins that the session has not. Nil if they do not show that it has not.
local function marks_after(held)
  local mark, fields, half = digest(ARGV[10]), fields_for(held)
  local number = field_of(mark, fields, half)
  local text = held == 0 and '' or marks_in(number)
  if not text or string.find(text, mark, 1, true) then return nil end
  local more, more_half = fields_for(held + 1)
  if more == fields then return {[number] = text .. ' ' .. mark} end
  local shared = fields - half  -- by this field and the new one
  local other = shared == number and text or marks_in(shared)
  if not other then return nil end
  local after = {[number] = text}
  after[shared], after[fields] = '', ''
  for one in string.gmatch(other, '%x+') do
    local place = field_of(one, more, more_half)
    after[place] = after[place] .. ' ' .. one
  end
  local place = field_of(mark, more, more_half)
  after[place] = after[place] .. ' ' .. mark
  return after
end

-- The effect that the request is about; nil if it was never begun in this life. That is shown by the marks; where they do not show it,
-- all effects are counted, and they get their marks anew: in a session of before there were marks, or where a mark is that of two keys.
local function effect_before()
  local kept = life and call('HGET', META, EFFECT)
  if not kept then
    local held = life and parts[8] or 0
    marks_with_it = marks_after(held)
    if not marks_with_it then
      local keys = keys_of_effects(held)  -- one that was lost must not begin again
      keys[#keys + 1] = ARGV[10]
      marks_with_it = marks_of(keys)
    end
    return nil
  end
  local row = {text = texts.opened('effects', EFFECT, kept)}
  row.status, row.attempt, row.began, row.token, row.at, row.by, row.request = string.match(
    row.text, '^(%l+) (%d+) (%d+) %d+ (%d+) (%d+) %d* (%S+)\n([^\n]*)')
  if not row.status then damaged('effects') end
  return row
end

-- An answer with the row of the effect behind it, and before that whether the lease is held that it was begun under.
local function with_effect(answer, row)
  local leases = lease_functions()
  local token, _, ends = leases.lease_in(call('HGET', META, 'lease'))
  local held = row.token ~= '0' and tonumber(row.token) == token and leases.in_force(ends, now)
  return answer .. '\n' .. (held and '1' or '0') .. row.text
end

local function put_effect(row, ended, ended_at, bodies)
  -- By `format`: a large number in a text of its own would be rounded, as 1e+15.
  row.text = string.format('%s %.0f %.0f %.0f %s %s %s %s', row.status, row.attempt, row.began, ended, row.token, row.at,
    ended_at, row.by) .. '\n' .. row.request .. '\n' .. bodies
  call('HSET', META, EFFECT, texts.sealed(EFFECT, row.text))
end
