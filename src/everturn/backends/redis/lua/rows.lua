-- Writes rows as they were stored elsewhere; what is there is left as it is, so that to write them twice is to write them
-- once. Rows, in ARGV from `i` on: how many entries, and of each seq, kind and value; how many changes, and of each version,
-- key ('': none), how many fields, and these.
local function last_of(stream)
  local row = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return row and tonumber(string.match(row[1], '^%d+')) or 0
end

local function put_entries(log, others, i)
  local count, last, size = tonumber(ARGV[i]), last_of(log), 0
  for j = i + 1, i + 3 * count, 3 do
    local seq, kind, value = ARGV[j], ARGV[j + 1], ARGV[j + 2]
    if tonumber(seq) > last then
      redis.call('XADD', log, seq .. '-0', kind, value)
      if kind ~= 'message' then
        local class = kind == 'summary' and 's' or kind == 'tool_call' and 't' or 'r'
        redis.call('ZADD', others, seq, class .. seq)
      end
      local _, mark = string.find(value, '^%d+ %d+ %d+ ')
      size = size + #value - (mark or 0)
    end
  end
  return size, i + 1 + 3 * count
end

-- As keys.lua has them. `facts` are "first count time state"; the content is among the fields `i` to `j`.
local function put_key(meta, key, version, facts, i, j)
  local first, count = string.match(facts, '^(%d+) (%d+) ')
  for field = i, j, 2 do
    if ARGV[field] == 'content' then
      local used = redis.call('HGET', meta, 'k' .. key) or ''
      local use = version .. ' ' .. first .. ' ' .. count .. ' ' .. ARGV[field + 1]
      redis.call('HSET', meta, 'k' .. key, used .. use)
    end
  end
  if tonumber(count) > 0 then redis.call('HSET', meta, 't' .. (first + count - 1), key) end
end

local function put_changes(meta, changes, i)
  local last = last_of(changes)
  local at = i + 1
  for _ = 1, tonumber(ARGV[i]) do
    local version, key, fields = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    if tonumber(version) > last then
      redis.call('XADD', changes, version .. '-0', unpack(ARGV, at + 3, at + 2 + fields))
      if key ~= '' then put_key(meta, key, version, ARGV[at + 4], at + 5, at + 2 + fields) end
    end
    at = at + 3 + fields
  end
end

-- Write all of them. Returns the bytes of the bodies.
local function put_rows(meta, log, others, changes, i)
  local size, next_part = put_entries(log, others, i)
  put_changes(meta, changes, next_part)
  return size
end

-- The fields that every session has, in the order in which a new one gets them: a small hash is a list, and what stands
-- in front is found first.
local function put_front(meta)
  redis.call('HSET', meta, 'version', 0, 'last_seq', 0, 'state', '0 0 0 0', 'bytes', 0, 'changed_at', 0, 'life', '',
             'created_at', 0, 'dimension', '', 'ttl', '', 'expires_at', '')
end
