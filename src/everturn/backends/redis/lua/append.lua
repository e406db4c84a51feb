-- Append entries as one turn. With `after` (replace), first move the head back to that seq.
-- ARGV from 10: after, dimension, how many are messages, bytes of all bodies; then "checksum body" of each entry. If not all are
-- messages, the kind of each stands before it. Behind `after` stands how many of the entries are copies of summaries, a turn of
-- their own that the receipt does not name ("12 1"); if nothing does, a replace that drops a summary is refused.
local head, cleared, floor, messages, kept = unpacked(state)
local said = tonumber(ARGV[12])
local step = said == #ARGV - 13 and 1 or 2
local count, past, carried = (#ARGV - 13) / step, false, 0
if dimension ~= '' and ARGV[11] ~= '' and dimension ~= ARGV[11] then return refused('dimension') end
if ARGV[10] ~= '' then
  past, carried = string.match(ARGV[10], '^(%d+) ?(%d*)$')
  past, carried = tonumber(past), tonumber(carried)
end
local moved = past and past ~= head
if moved then
  local path = path_functions()
  if not life or (past ~= 0 and not path.on_path(head, past)) then return refused('not_on_path') end
  if not carried and ANY_OTHERS and cleared < math.min(past, floor)
     and #other_functions().others_down(head, head, past + 1, 's', {}, 1) > 0 then
    return refused('summary_dropped')
  end
  local left, dropped = {}, 0
  for seq in string.gmatch(kept, '%d+') do
    if tonumber(seq) <= past then left[#left + 1] = seq else dropped = dropped + 1 end
  end
  dropped = dropped + path.messages_behind(head, math.max(past, floor))
  head, messages, kept = past, messages - dropped, table.concat(left, ',')
elseif count == 0 then
  return refused('unchanged')
end

local plan = {undoable = past, moves_back = moved}
if count > 0 then
  local seq, turn = last_seq + 1, last_seq + 1 + (carried or 0)
  local follows = head ~= last_seq and head
  last_seq = turn - 1  -- _commit.lua counts on from here
  head, messages, count = seq + count - 1, messages + said, seq + count - turn
  plan.size, plan.count = tonumber(ARGV[13]), count
  if count > 0 then plan.first = turn end
  if ARGV[11] ~= '' then plan.dimension = ARGV[11] end
  plan.write = function()
    if follows then
      path_functions().put_jump(seq, follows)
      add_to_parts(3, 1)
    end
    local message, mark, base = 'message ' .. life, nil, nil
    for i = 13 + step, #ARGV, step do
      if not mark or seq == turn then mark, base = string.format('%d %s ', seq, at), place_base(seq, now) end
      local other = step == 2 and ARGV[i - 1] ~= 'message' and ARGV[i - 1]
      local value = mark .. string.format('%d ', place_of(seq, base)) .. ARGV[i]
      call('XADD', LOG, string.format('%d-0', seq), other and other .. ' ' .. life or message, value)
      if other then
        other_functions().put_other(seq, other)
        add_to_parts(1, 1)
      end
      seq = seq + 1
    end
  end
end
-- Hidden ranges end at the head: else they would hide entries that a fork appends there.
if moved then cleared, floor = math.min(head, cleared), math.min(head, floor) end
local kind, after = past and 'replace' or 'append', packed(head, cleared, floor, messages, kept)
