-- Hide everything up to `floor` but summaries and `kept`, and append the summary that stands for it: a fold, planned on the
-- state that was seen.
-- ARGV from 10: as _planned.lua has them; then the summary: its dimension, the bytes of its body, "checksum body".
if not life then return refused('moved') end
local head, cleared, floor, messages, kept = unpacked(state)
if not is_as_planned(head, cleared, floor, messages, kept) then return refused('moved') end
if dimension ~= '' and ARGV[16] ~= '' and dimension ~= ARGV[16] then return refused('dimension') end
local plan = {undoable = true, first = last_seq + 1, count = 1, size = tonumber(ARGV[17])}
if ARGV[16] ~= '' then plan.dimension = ARGV[16] end
plan.write = function(seq)
  if head ~= last_seq then
    path_functions().put_jump(seq, head)
    add_to_parts(3, 1)
  end
  local place = place_of(seq, place_base(seq, now))
  call('XADD', LOG, seq .. '-0', 'summary ' .. life, seq .. ' ' .. at .. ' ' .. place .. ' ' .. ARGV[18])
  other_functions().put_other(seq, 'summary')
  add_to_parts(1, 1)
end
local kind, after = 'fold', packed(last_seq + 1, cleared, ARGV[12], messages - tonumber(ARGV[14]), ARGV[13])
