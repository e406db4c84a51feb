-- Forget a snapshot. ARGV from 10: its id.
if not life then return refused('no_session') end
if not snapshot_in(ARGV[10], parts[2]) then return refused('no_snapshot') end
return commit('delete_snapshot', state, {snapshot = ARGV[10], write = function()
  call('HDEL', SNAPSHOTS, ARGV[10])
  add_to_parts(2, -1)
end})
