-- What every script shares: the keys, the state as text, the path.
-- KEYS: meta, log, others, changes, snapshots: all of one session, under one hash tag.
local META, LOG, OTHERS, CHANGES, SNAPSHOTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local call = redis.call

-- The number that a text of digits is; nil for any other, such as `nan`, which Lua takes for one.
local function whole(text)
  return text and string.match(text, '^%d+$') and tonumber(text) or nil
end

-- A state is "head cleared floor messages", and behind that " seq,seq,..." for the system messages a trim kept.
local NOTHING = '0 0 0 0'

local function unpacked(state)
  local head, cleared, floor, messages, kept = string.match(state, '^(%d+) (%d+) (%d+) (%d+) ?(.*)$')
  return tonumber(head), tonumber(cleared), tonumber(floor), tonumber(messages), kept
end

local function packed(head, cleared, floor, messages, kept)
  local state = head .. ' ' .. cleared .. ' ' .. floor .. ' ' .. messages
  if kept and kept ~= '' then return state .. ' ' .. kept end
  return state
end

-- The ranges of the log that lead to `head`, the last one first. Jumps are "seq:after,seq:after,...", oldest first.
local function path_to(head)
  local jumps, ranges = {}, {}
  for seq, after in string.gmatch(call('HGET', META, 'jumps') or '', '(%d+):(%d+)') do
    jumps[#jumps + 1] = {tonumber(seq), tonumber(after)}
  end
  for i = #jumps, 1, -1 do
    if jumps[i][1] <= head then
      ranges[#ranges + 1] = {jumps[i][1], head}
      head = jumps[i][2]
    end
  end
  if head > 0 then ranges[#ranges + 1] = {1, head} end
  return ranges
end

local function on_path(head, seq)
  if seq == head then return true end
  for _, range in ipairs(path_to(head)) do
    if range[1] <= seq and seq <= range[2] then return true end
  end
  return false
end
