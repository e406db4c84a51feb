-- Make a snapshot's state the present one. ARGV from 10: its id.
if not life then return refused('no_session') end
local before = snapshot_in(ARGV[10], parts[2])
if not before then return refused('no_snapshot') end
if before == state then return refused('unchanged') end
return commit('rollback', before, {snapshot = ARGV[10], undoable = true, moves_back = true})
