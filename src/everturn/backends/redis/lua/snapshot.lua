-- Give the present state an id and a label. ARGV from 10: id, whether there is a label, the label.
-- A snapshot is "version time state", and behind that a newline and its label, if it has one.
local label = ARGV[11] ~= '' and ARGV[12]
return commit('snapshot', state, {snapshot = ARGV[10], label = label, write = function()
  call('HSET', SNAPSHOTS, ARGV[10], version .. ' ' .. at .. ' ' .. state .. (label and '\n' .. label or ''))
end})
