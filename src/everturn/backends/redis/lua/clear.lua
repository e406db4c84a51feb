-- Hide every entry (clear).
if not life then return refused('unchanged') end
local head, cleared, floor, _, kept = unpacked(state)
local shown = floor < head or kept ~= ''
if not shown and cleared < floor then
  shown = #other_functions().others_down(head, floor, cleared + 1, 's', {}) > 0
end
if not shown then return refused('unchanged') end
local kind, after, plan = 'clear', packed(head, head, head, 0), {undoable = true}
