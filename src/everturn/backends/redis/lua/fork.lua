-- Make a staged copy visible, as version 1 of a new session. KEYS 6 and 7: the staged log and others.
-- ARGV from 10: state, last seq, bytes, dimension, jumps, origin, how many entries were staged; '' as the state only
-- asks whether there is such a session.
if life then return refused('exists') end
if ARGV[10] == '' then return refused('unchanged') end
if call('XLEN', KEYS[6]) ~= tonumber(ARGV[16]) then return refused('moved') end
last_seq = tonumber(ARGV[11])
return commit('fork', ARGV[10], {size = tonumber(ARGV[12]), dimension = ARGV[13] ~= '' and ARGV[13],
  jumps = ARGV[14] ~= '' and ARGV[14], origin = ARGV[15], write = function()
  -- A staged copy expires by itself, should its writer vanish; this one is to stay.
  if ARGV[16] ~= '0' then
    call('RENAME', KEYS[6], LOG)
    call('PERSIST', LOG)
  end
  if call('EXISTS', KEYS[7]) == 1 then
    call('RENAME', KEYS[7], OTHERS)
    call('PERSIST', OTHERS)
  end
end})
