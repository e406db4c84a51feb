-- Make a staged copy visible, as version 1 of a new session. KEYS from 7: the staged parts.
-- ARGV from 10: state, last seq, dimension, origin, how many entries, others and jumps were staged, facts as facts.lua keeps them;
-- '' as the state only asks whether there is such a session.
if life then return refused('exists') end
if ARGV[10] == '' then return refused('unchanged') end
local staged = {tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])}
if call('XLEN', KEYS[8]) ~= staged[1] or call('ZCARD', KEYS[9]) ~= staged[2] or call('ZCARD', KEYS[12]) ~= staged[3] then
  return refused('moved')
end
last_seq = tonumber(ARGV[11])
local bytes = tonumber(call('HGET', KEYS[7], 'bytes') or 0)
local kind, after, plan = 'fork', ARGV[10], {}
if ARGV[17] ~= '' then plan.facts = ARGV[17] end
plan.size, plan.dimension, plan.origin = bytes, ARGV[12] ~= '' and ARGV[12], ARGV[13]
plan.write = function()
  -- A staged copy expires by itself, should its writer vanish; this one is to stay.
  for _, i in ipairs({2, 3, 6}) do
    if call('EXISTS', KEYS[6 + i]) == 1 then
      call('RENAME', KEYS[6 + i], KEYS[i])
      call('PERSIST', KEYS[i])
    end
  end
  call('UNLINK', KEYS[7])
  add_to_parts(1, staged[2])
  add_to_parts(3, staged[3])
end
