-- Make a staged copy visible, as version 1 of a new session. KEYS from 6: the staged parts.
-- ARGV from 10: state, last seq, dimension, jumps, origin, how many entries were staged; '' as the state only asks whether
-- there is such a session.
if life then return refused('exists') end
if ARGV[10] == '' then return refused('unchanged') end
if call('XLEN', KEYS[7]) ~= tonumber(ARGV[15]) then return refused('moved') end
last_seq = tonumber(ARGV[11])
local staged = tonumber(call('HGET', KEYS[6], 'bytes') or 0)
return commit('fork', ARGV[10], {size = staged, dimension = ARGV[12] ~= '' and ARGV[12],
  jumps = ARGV[13] ~= '' and ARGV[13], origin = ARGV[14], write = function()
  -- A staged copy expires by itself, should its writer vanish; this one is to stay.
  for i = 2, 3 do
    if call('EXISTS', KEYS[5 + i]) == 1 then
      call('RENAME', KEYS[5 + i], KEYS[i])
      call('PERSIST', KEYS[i])
    end
  end
  call('UNLINK', KEYS[6])
end})
