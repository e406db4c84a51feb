-- Begins every change: reads the session, and decides whether the request is late, a replay or a conflict.
-- The rules are those of core/plan_change.py.
-- ARGV: call, life, ttl, key, content, expected version, expected life, r for a retry, w if replicas are waited for.
-- The arguments of the effect follow from 10 on, and behind them the lease that is named, "token holder". Its script comes behind
-- this text. It ends in `return refused(...)`, or sets `kind`, `after` and `plan`, which _commit.lua carries out.
-- Nothing is written here but the fence of a retry that is refused: its first attempt must not be applied later.
-- The answer is one line, "time status life version first count ...": a table takes the server far longer to send.
local claim = table.remove(ARGV)
local stored = call('HMGET', META, unpack(META_FIELDS))
local life, ended, fence = stored[1], false, tonumber(stored[14])
local is_retry, waits = ARGV[8] ~= '', ARGV[9] ~= ''

if is_behind(fence) then return at .. LATE end
if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 or life and not sound(stored) then
  return at .. ' damaged - 0 0 0'
end
if life and stored[8] ~= '' and tonumber(stored[8]) <= now then life, ended = false, true end

local version, last_seq, size, state, ttl, dimension = 0, 0, 0, NOTHING, ARGV[3], ''
local parts, parts_moved = {0, 0, 0, 1, 0, 0}, false
if life then
  version, last_seq, state = tonumber(stored[2]), tonumber(stored[3]), stored[4]
  size, dimension, ttl = tonumber(stored[5]), stored[6], stored[7]
  LIFE, parts = life, parts_in(stored[12])
  ANY_JUMPS, ANY_OTHERS = parts[3] > 0, parts[1] > 0
end

-- `first_use`: the change that had used the key of this request.
local function refused(status, first_use)
  if is_retry then
    if not life then
      if ended then call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) end
      call('HSET', META, 'fence', at)
      if call('PTTL', META) < REQUEST_LIFE then call('PEXPIRE', META, REQUEST_LIFE) end  -- a lease may last longer
    else
      call('HSET', META, 'fence', at)
    end
  end
  local told = first_use or {version = version, first = 0, count = 0}
  local receipt = told.version .. ' ' .. told.first .. ' ' .. told.count
  return at .. ' ' .. status .. ' ' .. (life or '-') .. ' ' .. receipt .. ' ' .. dimension
end

-- A change from its line in the stream: version, first seq, count, time, state, and the other fields by name.
local function change_in(row)
  if not row then return nil end
  local number = tonumber(string.match(row[1], '^%d+'))
  local fields, others = row[2], {}
  local first, count, made, after = string.match(fields[2], '^%x+ (%d+) (%d+) (%d+) (.*)$')
  for i = 3, #fields, 2 do others[fields[i]] = fields[i + 1] end
  return {version = number, first = tonumber(first), count = tonumber(count), at = made, state = after, others = others}
end

-- The answer to a retry whose call was applied in a life that was erased since. `calls` is what erase.lua left.
if fence and (is_retry or not life) then
  local calls = call('HGET', META, 'calls')
  local place = calls and string.find(calls, ARGV[1] .. ' ', 1, true)
  if place then
    if waits then call('HSET', META, 'calls', calls) end  -- as in `replayed`
    local made_kind, receipt, made =
      string.match(calls, '^(%S+) (%S+ %d+ %d+ %d+) (%d+ %d+);', place + #ARGV[1] + 1)
    if made_kind then
      receipt = at .. ' replayed ' .. receipt
      if made_kind ~= 'snapshot' then return receipt end
      return receipt .. ' ' .. ARGV[10] .. ' ' .. made .. (ARGV[11] ~= '' and '\n' .. ARGV[12] or '')  -- as in snapshot.lua
    end
  end
end

-- Whether this request was applied before. A retry, and a first attempt that may have come twice, looks for its call: a retry
-- among all changes, a first attempt among those made since it was issued (a proxy may have sent it twice, or its retry may
-- have overtaken it). A request with a key looks for the uses of it.
local keyed = ''  -- earlier uses of the key, all of turns that a rollback dropped
local searches = is_retry or life and tonumber(stored[10]) >= issued
if life and (searches or ARGV[4] ~= '') then
  local function replayed(change)
    -- WAIT counts replicas that have all this connection wrote: a replay that writes nothing would prove nothing.
    if waits then call('HSET', META, 'life', life) end
    local receipt = at .. ' replayed ' .. life .. ' ' .. change.version .. ' ' .. change.first .. ' ' .. change.count
    if not change.state then return receipt end
    local _, _, _, messages = unpacked(change.state)
    local others = change.others
    return receipt .. ' ' .. (others.snapshot or '-') .. ' ' .. change.at .. ' ' .. messages
      .. (others.label and '\n' .. others.label or '')
  end

  local last, step = '+', 8
  while searches do
    local rows = call('XREVRANGE', CHANGES, last, '-', 'COUNT', step)
    for _, row in ipairs(rows) do
      if row[2][4] == ARGV[1] then return replayed(change_in(row)) end
      if not is_retry and (tonumber(string.match(row[2][2], '^%x+ %d+ %d+ (%d+)')) or 0) < issued then
        searches = false
        break
      end
    end
    if #rows < step then break end
    last, step = string.match(rows[step][1], '^%d+') - 1 .. '-0', 128
  end

  local uses = ARGV[4] ~= '' and key_functions().uses_of(ARGV[4]) or {}
  for i = #uses, 1, -1 do
    local use = uses[i]
    -- A turn that a rollback dropped may be written again; a change without a turn is never dropped.
    local is_turn = use.count > 0
    local made = is_turn and use or change_in(call('XRANGE', CHANGES, use.version .. '-0', use.version .. '-0')[1])
    if not made and use.first == 0 then made = use end  -- its change is forgotten, and it was no snapshot
    if made and not (is_turn and not path_functions().on_path(unpacked(state), use.first + use.count - 1)) then
      if use.content ~= ARGV[5] then return refused('key_reused', made) end
      return replayed(made)
    end
  end
  if #uses > 0 then keyed = call('HGET', META, 'k' .. ARGV[4]) end
end
if (ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version) or (ARGV[7] ~= '-' and ARGV[7] ~= (life or '')) then
  return refused('conflict')
end
if claim ~= '' and (ended or not lease_functions().is_claimed(claim, now)) then return refused('lease_lost') end

-- Note that there are so many more (or fewer) others, snapshots or jumps, or that another number in `parts` changes.
local function add_to_parts(place, more)
  parts[place], parts_moved = parts[place] + more, true
end

local function packed(head, cleared, floor, messages, kept)
  local text = string.format('%d %d %d %d', head, cleared, floor, messages)
  if kept and kept ~= '' then return text .. ' ' .. kept end
  return text
end
