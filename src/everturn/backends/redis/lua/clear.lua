-- Hide every entry.
if not life then return refused('unchanged') end
local head, cleared, floor, _, kept = unpacked(state)
local shown = floor < head or kept ~= ''
if not shown and cleared < floor then
  for _, member in ipairs(call('ZRANGEBYSCORE', OTHERS, cleared + 1, floor)) do
    if string.sub(member, 1, 1) == 's' and on_path(head, tonumber(string.sub(member, 2))) then
      shown = true
      break
    end
  end
end
if not shown then return refused('unchanged') end
return commit('clear', packed(head, head, head, 0), {undoable = true})
