-- Give the present state an id and a label. ARGV from 10: id, whether there is a label, the label.
local label = ARGV[11] ~= '' and ARGV[12]
return commit('snapshot', state, {snapshot = ARGV[10], label = label, write = function()
  local text = version .. ' ' .. at .. ' ' .. state .. (label and '\n' .. label or '')
  -- 0 if it is there: a request that came twice, which a clock that was set back in between kept from being recognised.
  parts[2] = parts[2] + call('HSET', SNAPSHOTS, ARGV[10], sealed(ARGV[10], text))
end})
