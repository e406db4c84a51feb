-- Append entries as one turn. With `after` (replace), first move the head back to that seq.
-- ARGV from 10: after, dimension, how many are messages, bytes of all bodies; then "checksum body" of each entry. If not all are
-- messages, the kind of each stands before it.
local head, cleared, floor, messages, kept = unpacked(state)
local said = tonumber(ARGV[12])
local step = said == #ARGV - 13 and 1 or 2
local count = (#ARGV - 13) / step
if dimension ~= '' and ARGV[11] ~= '' and dimension ~= ARGV[11] then return refused('dimension') end
local moved = ARGV[10] ~= '' and tonumber(ARGV[10]) ~= head
if moved then
  local past, path = tonumber(ARGV[10]), path_functions()
  if not life or (past ~= 0 and not path.on_path(head, past)) then return refused('not_on_path') end
  local left, dropped = {}, 0
  for seq in string.gmatch(kept, '%d+') do
    if tonumber(seq) <= past then left[#left + 1] = seq else dropped = dropped + 1 end
  end
  dropped = dropped + path.messages_behind(head, math.max(past, floor))
  -- Hidden ranges end at the head: else they would hide entries that a fork appends there.
  head, cleared, floor = past, math.min(past, cleared), math.min(past, floor)
  messages, kept = messages - dropped, table.concat(left, ',')
elseif count == 0 then
  return refused('unchanged')
end

local plan = {count = count, undoable = ARGV[10] ~= '', moves_back = moved}
if count > 0 then
  plan.first, plan.size = last_seq + 1, tonumber(ARGV[13])
  if ARGV[11] ~= '' then plan.dimension = ARGV[11] end
  local follows = head ~= last_seq and head
  head, messages = last_seq + count, messages + said
  plan.write = function(seq)
    if follows then
      path_functions().put_jump(seq, follows)
      add_to_parts(3, 1)
    end
    local message, mark, base = 'message ' .. life, string.format('%d %s ', seq, at), place_base(seq, now)
    for i = 13 + step, #ARGV, step do
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
local kind, after = ARGV[10] == '' and 'append' or 'replace', packed(head, cleared, floor, messages, kept)
