-- Take back the latest undo step. ARGV from 10: whether turns that followed may be dropped.
-- Undo steps are "version kind head hidden state", joined by ";", the latest last: `head` is where the change left it.
if not life then return refused('no_session') end
local steps = sealed_texts().field('undo', parts[5])
local older, step = string.match(steps, '^(.-);?([^;]+)$')
if not step then return refused('nothing_to_undo') end
local undone, moved_to, hidden, before = string.match(step, '^%d+ (%a+) (%d+) (-?%d+) (.*)$')
local head, _, _, messages = unpacked(state)
if undone == 'trim' or undone == 'clear' or (undone == 'fold' and head ~= tonumber(moved_to)) then
  -- What was hidden is shown again; what came later is not touched.
  local _, cleared, floor, _, kept = unpacked(before)
  before = packed(head, cleared, floor, messages + tonumber(hidden), kept)
elseif head ~= tonumber(moved_to) and ARGV[10] == '' then
  return refused('followed')
end
local kind, after, plan = 'undo', before, {undo = older, moves_back = true}
