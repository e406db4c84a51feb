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

local function put_changes(meta, changes, i)
  local last = last_of(changes)
  local at = i + 1
  for _ = 1, tonumber(ARGV[i]) do
    local version, key, fields = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    if tonumber(version) > last then
      redis.call('XADD', changes, version .. '-0', unpack(ARGV, at + 3, at + 2 + fields))
      if key ~= '' then
        local used = redis.call('HGET', meta, 'k' .. key)
        redis.call('HSET', meta, 'k' .. key, used and used .. ',' .. version or version)
      end
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
