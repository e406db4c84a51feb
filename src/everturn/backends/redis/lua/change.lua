-- Before every change: what the session is, whether the change was made before, whether it is expected.
-- ARGV: call, life, ttl, key, content, expected version, expected life, the caller's time, and letters: r for a retry,
-- w if replicas are waited for, t to go by the caller's time. (Else its time is only noted; expiry is by the server's.)
-- No more is written here than that a retry was answered. What the effect needs follows in a file of its own, which ends in `commit` or `refused`.
-- The answer is one line, "status life version first count ...": the server takes far longer to send a table.
local facts = call('HMGET', META, unpack(FACTS))
local at, letters = ARGV[8], ARGV[9]
local life, ended = facts[1], false

local function server_time()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function has(letter)
  return letters ~= '' and string.find(letters, letter, 1, true)
end

if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then return 'headless - 0 0 0' end
if life and not sound(facts) then return 'headless - 0 0 0' end
if life and facts[8] ~= '' then
  local ends = whole(facts[8])
  if ends <= (has('t') and tonumber(at) or server_time()) then life, ended = false, true end
end

local version, last_seq, size, state, ttl, dimension = 0, 0, 0, NOTHING, ARGV[3], ''
local parts = {0, 0, 0, 1, 0, 0}
if life then
  version, last_seq, state = whole(facts[2]), whole(facts[3]), facts[4]
  size, dimension, ttl = whole(facts[5]), facts[6], facts[7]
  LIFE, parts = life, parts_in(facts[12])
end

local function refused(status)
  return status .. ' ' .. (life or '-') .. ' ' .. version .. ' 0 0 ' .. dimension
end

-- A change from its line in the stream: version, first seq, count, time, state, and the other fields by name.
local function change_in(row)
  if not row then return nil end
  local number = tonumber(string.match(row[1], '^%d+'))
  local fields, others = row[2], {}
  local first, count, made, after = string.match(fields[2], '^(%d+) (%d+) (%d+) (.*)$')
  for i = 3, #fields, 2 do others[fields[i]] = fields[i + 1] end
  return {version = number, first = tonumber(first), count = tonumber(count), at = made, state = after, others = others}
end

local function replayed(change)
  -- WAIT counts replicas that have all this connection wrote: a replay that writes nothing would prove nothing.
  if has('w') then call('HSET', META, 'life', life) end
  local _, _, _, messages = unpacked(change.state)
  local others = change.others
  return 'replayed ' .. life .. ' ' .. change.version .. ' ' .. change.first .. ' ' .. change.count .. ' '
    .. (others.snapshot or '-') .. ' ' .. change.at .. ' ' .. messages .. (others.label and '\n' .. others.label or '')
end

local REMEMBERED, PRUNED = 1024, 64

-- Calls that were answered at a second attempt, as "version call...": the first may have been given up and still be on
-- its way. When it comes, it is too late. Forgotten at that version; no more are kept than changes are remembered.
local retried = life and call('HGET', META, 'retried')
local function with_this_call()
  local last, calls = string.match(retried or '', '^(%d+) (.*)$')
  if not last or version > tonumber(last) then calls = '' end
  return version + REMEMBERED .. ' ' .. string.sub(calls .. ARGV[1], -16 * REMEMBERED)
end

local keyed = ''
if life then
  local late = retried and string.find(retried, ARGV[1], 1, true)
  if late or has('r') then
    for _, row in ipairs(call('XREVRANGE', CHANGES, '+', '-')) do
      if row[2][4] == ARGV[1] then return replayed(change_in(row)) end
    end
    if not has('r') then return refused('unchanged') end  -- its retry was refused, and its caller told so
    if not late then
      retried = with_this_call()
      call('HSET', META, 'retried', retried)
    end
  end
  local used = ARGV[4] ~= '' and call('HGET', META, 'k' .. ARGV[4])
  if used then
    keyed = used .. ','
    local numbers = {}
    for number in string.gmatch(used, '%d+') do numbers[#numbers + 1] = tonumber(number) end
    for i = #numbers, 1, -1 do
      local change = change_in(call('XRANGE', CHANGES, numbers[i] .. '-0', numbers[i] .. '-0')[1])
      -- A turn that a rollback dropped may be written again; a change without a turn is never dropped.
      if change and (change.count == 0 or on_path(unpacked(state), change.first + change.count - 1)) then
        if change.others.content ~= ARGV[5] then return refused('key_reused') end
        return replayed(change)
      end
    end
  end
end
if (ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version) or (ARGV[7] ~= '-' and ARGV[7] ~= (life or '')) then
  return refused('conflict')
end

local function forget_old_changes()
  local last = version - REMEMBERED
  for _, row in ipairs(call('XRANGE', CHANGES, '-', last .. '-0')) do
    local fields, key = row[2], nil
    for i = 3, #fields, 2 do
      if fields[i] == 'key' then key = 'k' .. fields[i + 1] end
    end
    if key then
      local left = {}
      for number in string.gmatch(call('HGET', META, key) or '', '%d+') do
        if tonumber(number) > last then left[#left + 1] = number end
      end
      if #left > 0 then call('HSET', META, key, table.concat(left, ',')) else call('HDEL', META, key) end
    end
  end
  call('XTRIM', CHANGES, 'MINID', (last + 1) .. '-0')
end

local function with_undo_step(kind, after)
  local steps = {}
  for step in string.gmatch(field('undo', parts[5]), '[^;]+') do steps[#steps + 1] = step end
  local head, _, _, messages = unpacked(after)
  local _, _, _, before = unpacked(state)
  steps[#steps + 1] = version .. ' ' .. kind .. ' ' .. head .. ' ' .. (before - messages) .. ' ' .. state
  return table.concat(steps, ';', math.max(1, #steps - 9))
end

-- Write the change: `after` is the new state; `plan` holds what else there is to write. The answer is its receipt.
local function commit(kind, after, plan)
  local fresh = not life
  if fresh then
    if ended then call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) end
    life = ARGV[2]
    LIFE = life
  end
  version = version + 1
  -- Before the first write, for it looks at what is there.
  local undo = plan.undo or plan.undoable and with_undo_step(kind, after)
  local first, count = plan.first or 0, plan.count or 0
  if plan.write then plan.write(first) end
  local row = {kind .. ' ' .. life, first .. ' ' .. count .. ' ' .. at .. ' ' .. after, 'call', ARGV[1]}
  if ARGV[4] ~= '' then
    row[5], row[6], row[7], row[8] = 'key', ARGV[4], 'content', ARGV[5]
  end
  if plan.snapshot then
    row[#row + 1] = 'snapshot'
    row[#row + 1] = plan.snapshot
  end
  if plan.label then
    row[#row + 1] = 'label'
    row[#row + 1] = plan.label
  end
  call('XADD', CHANGES, version .. '-0', unpack(row))
  if plan.ttl then ttl = plan.ttl end
  local fields, places = {}, {}
  for i, name in ipairs(FACTS) do places[name] = i end
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
    if places[name] then facts[places[name]] = value end
  end
  set('version', version)
  set('last_seq', last_seq + count)
  set('state', after)
  set('bytes', size + (plan.size or 0))
  set('changed_at', at)
  if retried and version > tonumber(string.match(retried, '^%d+')) then call('HDEL', META, 'retried') end
  if fresh then
    if has('r') then set('retried', with_this_call()) end
    set('life', life)
    set('created_at', at)
    -- All in their places from the start: a small hash is a list, and what stands in front is found first.
    set('dimension', '')
    set('ttl', ttl)
    set('expires_at', '')
    set('forked_from', plan.origin or '')
  end
  if plan.dimension and dimension == '' then set('dimension', plan.dimension) end
  if undo then
    undo = sealed('undo', undo)
    parts[5] = #undo
    set('undo', undo)
  end
  if plan.ttl then set('ttl', ttl) end
  if ARGV[4] ~= '' then set('k' .. ARGV[4], keyed .. version) end
  local clock
  if ttl ~= '' then
    clock = server_time()
    local now = has('t') and tonumber(at) or clock
    set('expires_at', string.format('%.0f', now + tonumber(ttl) * 1000000))
  elseif plan.ttl then
    set('expires_at', '')
  end
  if version % PRUNED == 0 and version > REMEMBERED then
    forget_old_changes()
    parts[4] = math.max(parts[4], version - REMEMBERED + 1)
  end
  set('parts', table.concat(parts, ' '))
  set('check', check_of(facts))
  call('HSET', META, unpack(fields))
  if ttl ~= '' and tonumber(ttl) < 1e10 then
    -- One absolute time for all: the parts of a session expire together.
    local expiry = string.format('%.0f', math.floor((clock + tonumber(ttl) * 1000000) / 1000) + 1)
    for i = 1, 6 do call('PEXPIREAT', KEYS[i], expiry) end
  elseif plan.ttl then
    for i = 1, 6 do call('PERSIST', KEYS[i]) end
  end
  local receipt = 'applied ' .. life .. ' ' .. version .. ' ' .. first .. ' ' .. count
  if not plan.snapshot then return receipt end
  local _, _, _, messages = unpacked(after)
  return receipt .. ' ' .. plan.snapshot .. ' ' .. at .. ' ' .. messages .. (plan.label and '\n' .. plan.label or '')
end
