-- Make the state of a snapshot, or the state after a version, the present one. ARGV from 10: a snapshot's id ('': none); a
-- version.
if not life then return refused('no_session') end
local named, before = ARGV[10] ~= '', nil
if named then
  before = sealed_texts().snapshot_in(ARGV[10], parts[2])
  if not before then return refused('no_snapshot') end
else
  before = state_after(tonumber(ARGV[11]), version, parts[4], sealed_texts().field('forgotten', parts[6]))
  if not before then return refused('no_version') end
end
if before == state then return refused('unchanged') end
local plan = {undoable = true, moves_back = true}
if named then plan.snapshot = ARGV[10] else plan.label = 'version ' .. ARGV[11] end
local kind, after = 'rollback', before
