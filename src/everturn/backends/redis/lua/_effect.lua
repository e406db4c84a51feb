-- Shared: effects, each a field `effect:<key>` of meta. Sealed, it has one line "status attempt began ended token at ended_at by",
-- then request, result, error and note, each a line of JSON, empty for none. The rules are those of core/plan_change.py.
local EFFECT, texts = 'effect:' .. ARGV[10], sealed_texts()

-- The effect that the request is about; nil if it was never begun in this life.
local function effect_before()
  local kept = life and call('HGET', META, EFFECT)
  if not kept then
    if life and parts[8] then count_effects(parts[8]) end  -- one that was lost must not begin again
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
