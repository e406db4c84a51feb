-- Shared: write rows as they were stored elsewhere. A row that is there already is left as it is, so a step may be sent
-- twice. Rows, in ARGV from `i` on: how many entries, and of each seq, kind and value; how many changes, and of each version,
-- key ('': none), how many fields, and these; how many jumps, and of each seq and after; how many snapshots, and of each id
-- and text. They are of the life LIFE. Jumps come when all entries before them are there: they count them.
local path, others, texts = path_functions(), other_functions(), sealed_texts()

local function last_of(stream)
  local row = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return row and tonumber(string.match(row[1], '^%d+')) or 0
end

local function put_entries(i)
  local count, last, size = tonumber(ARGV[i]), last_of(LOG), 0
  for j = i + 1, i + 3 * count, 3 do
    local seq, kind, value = ARGV[j], ARGV[j + 1], ARGV[j + 2]
    if tonumber(seq) > last then
      call('XADD', LOG, seq .. '-0', kind .. ' ' .. LIFE, value)
      if kind ~= 'message' then others.put_other(seq, kind) end
      local _, mark = string.find(value, '^%d+ %d+ %d+ %d+ ')
      size = size + #value - (mark or 0)
    end
  end
  return size, i + 1 + 3 * count
end

-- Note the use of a key, as _keys.lua has it. `made` is "first count time state"; the content is among the fields `i` to `j`.
local function put_key(key, version, kind, made, i, j)
  local first, count = string.match(made, '^(%d+) (%d+) ')
  if kind == 'snapshot' then first = 1 end
  for place = i, j, 2 do
    if ARGV[place] == 'content' then
      local used = call('HGET', META, 'k' .. key) or ''
      call('HSET', META, 'k' .. key, used .. version .. ' ' .. first .. ' ' .. count .. ' ' .. ARGV[place + 1])
    end
  end
  if tonumber(count) > 0 then call('HSET', META, 't' .. (first + count - 1), key) end
end

local function put_changes(i)
  local last = last_of(CHANGES)
  local at = i + 1
  for _ = 1, tonumber(ARGV[i]) do
    local version, key, fields = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    if tonumber(version) > last then
      local row = {ARGV[at + 3] .. ' ' .. LIFE, unpack(ARGV, at + 4, at + 2 + fields)}
      row[2] = change_check(version, row) .. row[2]
      call('XADD', CHANGES, version .. '-0', unpack(row))
      if key ~= '' then put_key(key, version, ARGV[at + 3], ARGV[at + 4], at + 5, at + 2 + fields) end
    end
    at = at + 3 + fields
  end
  return at
end

local function put_jumps(i)
  local count, last = tonumber(ARGV[i]), tonumber(call('ZREVRANGE', JUMPS, 0, 0, 'WITHSCORES')[2] or 0)
  for j = i + 1, i + 2 * count, 2 do
    if tonumber(ARGV[j]) > last then path.put_jump(ARGV[j], tonumber(ARGV[j + 1])) end
  end
  return i + 1 + 2 * count
end

local function put_snapshots(i)
  for j = i + 1, i + 2 * tonumber(ARGV[i]), 2 do call('HSET', SNAPSHOTS, ARGV[j], texts.sealed(ARGV[j], ARGV[j + 1])) end
end

-- Write all rows from ARGV[i] on. Returns the bytes of their bodies.
local function put_rows(i)
  local size, next_part = put_entries(i)
  put_snapshots(put_jumps(put_changes(next_part)))
  return size
end

-- Write the fields that every session has, in the order in which a new one gets them: a small hash is a list, and the fields
-- in front are found first.
local function put_front()
  call('HSET', META, 'version', 0, 'last_seq', 0, 'state', '0 0 0 0', 'bytes', 0, 'changed_at', 0, 'life', '',
       'created_at', 0, 'dimension', '', 'ttl', '', 'expires_at', '', 'forked_from', '', 'parts', '', 'check', '')
end
