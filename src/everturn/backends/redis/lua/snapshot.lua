-- Give the present state an id and a label. ARGV from 10: id, whether there is a label, the label.
local label = ARGV[11] ~= '' and ARGV[12]
return commit('snapshot', state, {snapshot = ARGV[10], label = label, write = function()
  local text = version .. ' ' .. at .. ' ' .. state .. (label and '\n' .. label or '')
  call('HSET', SNAPSHOTS, ARGV[10], sealed(ARGV[10], text))
  parts[2] = parts[2] + 1
end})
