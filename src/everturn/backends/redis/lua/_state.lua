-- Shared by most scripts: the keys, and the state as text.
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

-- How many others, snapshots and jumps there are; the oldest version remembered; the lengths of `undo`, `forgotten` and `facts`;
-- how many effects there are. (The last two are nil if there are none; of facts, 0 where there are effects.)
local function parts_in(text)
  local others, snapshots, jumps, oldest, undo, forgotten, facts, effects =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*)$')
  if not others then damaged('meta') end
  return {tonumber(others), tonumber(snapshots), tonumber(jumps), tonumber(oldest), tonumber(undo), tonumber(forgotten),
          tonumber(facts), tonumber(effects)}
end

-- A state is "head cleared floor messages", and behind that " seq,seq,..." for the system messages a trim kept.
local NOTHING = '0 0 0 0'

local function unpacked(state)
  local head, cleared, floor, messages, kept = string.match(state, '^(%d+) (%d+) (%d+) (%d+) ?(.*)$')
  return tonumber(head), tonumber(cleared), tonumber(floor), tonumber(messages), kept
end
