-- Shared by most scripts: the checks that make damage loud.
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

-- Return the facts that the check covers, one a line, and their check.
local function check_of(facts)
  local lines = table.concat(facts, '\n', 1, 12)
  return digest(KEYS[1] .. '\n' .. lines), lines
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
  local check, lines = check_of(facts)
  return facts[13] == check and lines or nil
end
