-- Shared by trim and fold: whether what a plan would hide is still in view as it was seen. Appends do no harm.
-- ARGV from 10: the head seen, "cleared floor kept" seen, floor, kept, messages hidden, the life seen.
local function is_as_planned(head, cleared, floor, messages, kept)
  local path = path_functions()
  if life ~= ARGV[15] or cleared .. ' ' .. floor .. ' ' .. kept ~= ARGV[11] or not path.on_path(head, tonumber(ARGV[10])) then
    return false
  end
  -- A server that took over without the latest changes gives their seqs to other entries: then the numbers do not fit.
  local _, remain = string.gsub(ARGV[13], '%d+', '')
  return messages - tonumber(ARGV[14]) == path.messages_behind(head, math.max(cleared, tonumber(ARGV[12]))) + remain
end
