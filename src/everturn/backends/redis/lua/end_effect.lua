-- End an effect that is started. ARGV from 10: key, status, result or error, note ('': none), attempt (0: whichever).
local row = effect_before()
if not row then return refused('no_effect') end
if ARGV[14] ~= '0' and ARGV[14] ~= row.attempt then return with_effect(refused('effect_repeated'), row) end
if row.status ~= 'started' then return with_effect(refused('effect_ended'), row) end
local finished = ARGV[11] == 'finished'
local kind, after, plan = finished and 'finish_effect' or 'fail_effect', state, {label = ARGV[10]}
plan.write = function()
  row.status = ARGV[11]
  put_effect(row, version, at, (finished and ARGV[12] .. '\n' or '\n' .. ARGV[12]) .. '\n' .. ARGV[13])
end
plan.answer = function(receipt) return with_effect(receipt, row) end
