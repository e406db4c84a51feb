-- Shared by most scripts: the checks that make damage loud.
-- Fields of meta that every session has, in the order in which its `check` covers them, together with the key's own name;
-- and the fence, which may be there without a session.
local META_FIELDS = {'life', 'version', 'last_seq', 'state', 'bytes', 'dimension', 'ttl', 'expires_at', 'created_at',
               'changed_at', 'forked_from', 'parts', 'check', 'fence'}

-- The one digest that a server computes in C for a script. fakeredis lacks it, but lets a script call Python.
local sha1hex = redis.sha1hex
  or rawget(_G, 'python').eval("lambda text: __import__('hashlib').sha1(text).hexdigest().encode()")

-- Eight digits: enough against accidents, not against forgers.
local function digest(text)
  return string.sub(sha1hex(text), 1, 8)
end

-- Return the check of the first twelve META_FIELDS, and the text that it covers: one field a line.
local function check_of(stored)
  local lines = table.concat(stored, '\n', 1, 12)
  return digest(KEYS[1] .. '\n' .. lines), lines
end

-- The check that a change begins with: over its version, and over its row as it was before that.
local function change_check(version, row)
  return digest(version .. ' ' .. table.concat(row, ' ')) .. ' '
end

-- Return the text of the fields, one a line, if it matches their check, which covers the key's name too; else nil.
local function sound(stored)
  for i = 1, 12 do
    if not stored[i] then return nil end
  end
  local check, lines = check_of(stored)
  return stored[13] == check and lines or nil
end
