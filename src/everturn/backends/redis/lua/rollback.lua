-- Make a snapshot's state the present one. ARGV from 10: its id.
if not life then return refused('no_session') end
local snapshot = call('HGET', SNAPSHOTS, ARGV[10])
if not snapshot then return refused('no_snapshot') end
local before = string.match(snapshot, '^%d+ %d+ ([%d ,]+)')
if before == state then return refused('unchanged') end
return commit('rollback', before, {snapshot = ARGV[10], undoable = true, moves_back = true})
