-- Hide everything up to `floor` but summaries and `kept`: a trim, planned on the state that was seen.
-- ARGV from 10: as _planned.lua has them; floor is '' if there is nothing to hide.
if not life or ARGV[12] == '' then return refused('unchanged') end
local head, cleared, floor, messages, kept = unpacked(state)
if not is_as_planned(head, cleared, floor, messages, kept) then return refused('moved') end
local kind, after = 'trim', packed(head, cleared, ARGV[12], messages - tonumber(ARGV[14]), ARGV[13])
local plan = {undoable = true}
