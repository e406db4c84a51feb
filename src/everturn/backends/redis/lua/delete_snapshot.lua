-- Forget a snapshot. ARGV from 10: its id.
if not life then return refused('no_session') end
if not sealed_texts().snapshot_in(ARGV[10], parts[2]) then return refused('no_snapshot') end
local kind, after, plan = 'delete_snapshot', state, {snapshot = ARGV[10], write = function()
  call('HDEL', SNAPSHOTS, ARGV[10])
  add_to_parts(2, -1)
end}
