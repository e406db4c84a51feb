-- Hide everything up to `floor` but summaries and `kept`: a trim, planned on the state that was seen.
-- ARGV from 10: the head seen, "cleared floor kept" seen, floor ('': there is nothing to hide), kept, messages hidden,
-- the life seen.
if not life or ARGV[12] == '' then return refused('unchanged') end
local head, cleared, floor, messages, kept = unpacked(state)
if life ~= ARGV[15] or cleared .. ' ' .. floor .. ' ' .. kept ~= ARGV[11]
   or not path_functions().on_path(head, tonumber(ARGV[10])) then
  return refused('moved')
end
local kind, after = 'trim', packed(head, cleared, ARGV[12], messages - tonumber(ARGV[14]), ARGV[13])
local plan = {undoable = true}
