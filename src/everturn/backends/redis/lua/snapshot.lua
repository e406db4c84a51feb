-- Give the present state an id and a label. ARGV from 10: id, whether there is a label, the label.
local label = ARGV[11] ~= '' and ARGV[12]
local kind, after, plan = 'snapshot', state, {snapshot = ARGV[10], label = label, write = function()
  local text = version .. ' ' .. at .. ' ' .. state .. (label and '\n' .. label or '')
  -- HSET answers 0 if the id is there: the request came twice, and a clock that was set back in between hid the replay.
  add_to_parts(2, call('HSET', SNAPSHOTS, ARGV[10], sealed_texts().sealed(ARGV[10], text)))
end}
