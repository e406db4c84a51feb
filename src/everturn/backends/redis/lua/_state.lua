-- Shared by every script: the keys, the state as text, and rows that carry a check.
-- KEYS: meta, log, others, changes, snapshots, jumps: all of one session, under one hash tag.
local META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local call = redis.call
local LIFE = ''  -- of the session that the script is about; rows are checked with it, so that no other session's pass

local ANY_JUMPS, ANY_OTHERS = true, true  -- whether there may be any: most sessions have none, and no command is needed

-- The number that a text of digits is; nil for any other, such as `nan`, which Lua takes for one.
local function whole(text)
  return text and string.match(text, '^%d+$') and tonumber(text) or nil
end

-- End the script, before it has written anything: this part is not as it was written. errors.py knows the word.
local function damaged(part)
  error('DAMAGED ' .. part .. '.', 0)
end

-- A text with its check in front; and back again. `name` is what it is kept under, so that no two can change places.
local function sealed(name, text)
  return digest(LIFE .. ' ' .. name .. ' ' .. text) .. ' ' .. text
end

local function opened(part, name, kept)
  local text = string.sub(kept, 10)
  if string.sub(kept, 1, 9) ~= digest(LIFE .. ' ' .. name .. ' ' .. text) .. ' ' then damaged(part) end
  return text
end

-- How many others, snapshots and jumps there are; the oldest version remembered; the lengths of `undo` and `forgotten`.
local function parts_in(text)
  local others, snapshots, jumps, oldest, undo, forgotten =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not others then damaged('meta') end
  return {tonumber(others), tonumber(snapshots), tonumber(jumps), tonumber(oldest), tonumber(undo), tonumber(forgotten)}
end

-- A field of meta that not every session has; empty if it was never written. `length` is what it must have.
local function field(name, length)
  if length == 0 then return '' end
  local kept = call('HGET', META, name)
  if not kept or #kept ~= length then damaged(name) end
  return opened(name, name, kept)
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

-- Entries that are no messages are listed by seq: "s12" for a summary, "t" for a tool call, "r" for any other record.
local function put_other(seq, kind)
  local class = kind == 'summary' and 's' or kind == 'tool_call' and 't' or 'r'
  call('ZADD', OTHERS, seq, sealed('other', class .. seq))
end

-- A snapshot is "version time state", and behind that a newline and its label, if it has one. Nil if there is none.
local function snapshot_in(id, held)
  local kept = call('HGET', SNAPSHOTS, id)
  if not kept then
    if call('HLEN', SNAPSHOTS) ~= held then damaged('snapshots') end
    return nil
  end
  return string.match(opened('snapshots', id, kept), '^%d+ %d+ ([%d ,]+)')
end
