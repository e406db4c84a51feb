-- Shared by every script: the checks that make damage loud.
-- Fields of meta that every session has, in the order in which its `check` covers them, together with the key's own name;
-- and the fence, which may be there without a session.
local FACTS = {'life', 'version', 'last_seq', 'state', 'bytes', 'dimension', 'ttl', 'expires_at', 'created_at',
               'changed_at', 'forked_from', 'parts', 'check', 'fence'}

-- The one digest that a server computes in C for a script. fakeredis lacks it, but lets a script call Python.
local sha1hex = redis.sha1hex
  or rawget(_G, 'python').eval("lambda text: __import__('hashlib').sha1(text).hexdigest().encode()")

-- Eight digits: enough against accidents, not against forgers.
local function digest(text)
  return string.sub(sha1hex(text), 1, 8)
end

-- The place of an entry: a number computed from its seq, its turn and its time (`base` holds the latter two), so that an entry
-- that was swapped, or given another time, is noticed. stored_form.py has the same rule.
local function base_of(turn, time)
  return turn * 104729 + time
end

local function place_of(seq, base)
  return (seq * 7919 + base) % 1048573
end

-- The facts that the check covers, one a line.
local function lines_of(facts)
  return table.concat(facts, '\n', 1, 12)
end

local function check_of(facts)
  return digest(KEYS[1] .. '\n' .. lines_of(facts))
end

-- The check that a change begins with: over its version, and over its row as it was before that.
local function change_check(version, row)
  return digest(version .. ' ' .. table.concat(row, ' ')) .. ' '
end

-- Return the facts, one a line, if they were written together, under this very key; else nil.
local function sound(facts)
  for i = 1, 12 do
    if not facts[i] then return nil end
  end
  local lines = lines_of(facts)
  return facts[13] == digest(KEYS[1] .. '\n' .. lines) and lines or nil
end
