-- Shared by every change: reads the session and decides whether the request is late, a replay or a conflict.
-- The rules are those of core/plan_change.py.
-- ARGV: call, life, ttl, key, content, expected version, expected life, r for a retry, w if replicas are waited for.
-- The arguments of the effect follow from 10 on; behind them stands the lease that is named, "token holder". Its script comes behind this text, and ends in `commit` or `refused`.
-- Nothing is written here but the fence of a retry that is refused: its first attempt must not be applied later.
-- The answer is one line, "time status life version first count ...": a table takes the server far longer to send.
local claim = table.remove(ARGV)
local facts = call('HMGET', META, unpack(FACTS))
local life, ended, fence = facts[1], false, tonumber(facts[14])
local DAMAGED = at .. ' damaged - 0 0 0'
local is_retry, waits = ARGV[8] ~= '', ARGV[9] ~= ''

if is_behind(fence) then return at .. LATE end
if not life and call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then return DAMAGED end
if life and not sound(facts) then return DAMAGED end
if life and facts[8] ~= '' and tonumber(facts[8]) <= now then life, ended = false, true end

local version, last_seq, size, state, ttl, dimension = 0, 0, 0, NOTHING, ARGV[3], ''
local parts, parts_moved = {0, 0, 0, 1, 0, 0}, false
if life then
  version, last_seq, state = tonumber(facts[2]), tonumber(facts[3]), facts[4]
  size, dimension, ttl = tonumber(facts[5]), facts[6], facts[7]
  LIFE, parts = life, parts_in(facts[12])
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

local REMEMBERED, PRUNED = 1024, 64

-- The change that this call made; nil if it made none. A retry looks among all changes. A first attempt looks among those
-- made since it was issued: a proxy may have sent it twice, or its retry may have overtaken it.
local function made_by_this_call()
  local last, step = '+', 8
  while true do
    local rows = call('XREVRANGE', CHANGES, last, '-', 'COUNT', step)
    for _, row in ipairs(rows) do
      if row[2][4] == ARGV[1] then return change_in(row) end
      if not is_retry and (tonumber(string.match(row[2][2], '^%x+ %d+ %d+ (%d+)')) or 0) < issued then return nil end
    end
    if #rows < step then return nil end
    last, step = string.match(rows[step][1], '^%d+') - 1 .. '-0', 128
  end
end

-- The answer to a request whose call was applied in a life that was erased since; nil if there was none.
local function replayed_from_tombstone()
  local calls = call('HGET', META, 'calls')
  local place = calls and string.find(calls, ARGV[1] .. ' ', 1, true)
  if not place then return nil end
  if waits then call('HSET', META, 'calls', calls) end  -- as in `replayed`
  local kind, receipt, made =
    string.match(calls, '^(%S+) (%S+ %d+ %d+ %d+) (%d+ %d+);', place + #ARGV[1] + 1)
  if not kind then return nil end
  receipt = at .. ' replayed ' .. receipt
  if kind ~= 'snapshot' then return receipt end
  return receipt .. ' ' .. ARGV[10] .. ' ' .. made .. (ARGV[11] ~= '' and '\n' .. ARGV[12] or '')  -- as in snapshot.lua
end

if fence and (is_retry or not life) then
  local answer = replayed_from_tombstone()
  if answer then return answer end
end

local keyed = ''
if life then
  if is_retry or tonumber(facts[10]) >= issued then
    local made = made_by_this_call()
    if made then return replayed(made) end
  end
  local uses = ARGV[4] ~= '' and uses_of(ARGV[4]) or {}
  for i = #uses, 1, -1 do
    local use = uses[i]
    -- A turn that a rollback dropped may be written again; a change without a turn is never dropped.
    local is_turn = use.count > 0
    local made = is_turn and use or change_in(call('XRANGE', CHANGES, use.version .. '-0', use.version .. '-0')[1])
    if not made and use.first == 0 then made = use end  -- its change is forgotten, and it was no snapshot
    if made and not (is_turn and not on_path(unpacked(state), use.first + use.count - 1)) then
      if use.content ~= ARGV[5] then return refused('key_reused', made) end
      return replayed(made)
    end
  end
  if #uses > 0 then keyed = call('HGET', META, 'k' .. ARGV[4]) end
end
if (ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version) or (ARGV[7] ~= '-' and ARGV[7] ~= (life or '')) then
  return refused('conflict')
end
if claim ~= '' and (ended or not is_claimed(claim, now)) then return refused('lease_lost') end

-- Forget all but the latest changes. A request that one of them may have made is late from now on.
local function forget_old_changes()
  local last = version - REMEMBERED
  for _, row in ipairs(call('XRANGE', CHANGES, '-', last .. '-0')) do
    local change = change_in(row)
    if change.others.key then forget_uses(change.others.key, last) end
    fence = math.max(fence or 0, tonumber(change.at))
  end
  call('XTRIM', CHANGES, 'MINID', (last + 1) .. '-0')
  if fence then call('HSET', META, 'fence', string.format('%.0f', fence)) end
end

local function with_undo_step(kind, after)
  local steps = {}
  for step in string.gmatch(field('undo', parts[5]), '[^;]+') do steps[#steps + 1] = step end
  local head, _, _, messages = unpacked(after)
  local _, _, _, before = unpacked(state)
  steps[#steps + 1] = version .. ' ' .. kind .. ' ' .. head .. ' ' .. (before - messages) .. ' ' .. state
  return table.concat(steps, ';', math.max(1, #steps - 9))
end

-- Note that there are so many more (or fewer) others, snapshots or jumps, or that another number in `parts` changes.
local function add_to_parts(place, more)
  parts[place], parts_moved = parts[place] + more, true
end

-- Let all parts expire at one moment, by the server's clock, because the server expires them.
local function expire_parts()
  local clock = not_after == '' and server_time() or now
  local expiry = string.format('%.0f', math.floor((clock + tonumber(ttl) * 1000000) / 1000) + 1)
  for i = 1, 6 do call('PEXPIREAT', KEYS[i], expiry) end
end

-- Write the change. `after` is the new state; `plan` has the rest: entries, an undo step, a snapshot, a TTL. Returns the
-- receipt. Each number is made a text once: most of the time that a script takes goes into such small things.
local function commit(kind, after, plan)
  local fresh = not life
  if fresh then
    if ended then call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) end
    call('PERSIST', META)  -- a tombstone, or a lease without a session, becomes one
    life = ARGV[2]
    LIFE = life
  end
  version = version + 1
  -- Before the first write: it ends the script if the undo steps are damaged.
  local undo = plan.undo or plan.undoable and with_undo_step(kind, after)
  local first, count = plan.first or 0, plan.count or 0
  if plan.write then plan.write(first) end
  local version_text, written = version .. '', first .. ' ' .. count
  local row = {kind .. ' ' .. life, written .. ' ' .. at .. ' ' .. after, 'call', ARGV[1]}
  if ARGV[4] ~= '' then
    row[5], row[6], row[7], row[8] = 'key', ARGV[4], 'content', ARGV[5]
  end
  if plan.snapshot then row[#row + 1], row[#row + 2] = 'snapshot', plan.snapshot end
  if plan.label then row[#row + 1], row[#row + 2] = 'label', plan.label end
  row[2] = change_check(version_text, row) .. row[2]
  call('XADD', CHANGES, version_text .. '-0', unpack(row))

  -- Five facts change with every change. `more` are the fields that only some changes set.
  local more = {}
  local function set(name, value, place)
    more[#more + 1], more[#more + 2] = name, value
    if place then facts[place] = value end
  end
  if plan.ttl then ttl = plan.ttl end
  if plan.moves_back then fence = now end
  if fence and (fresh or plan.moves_back) then set('fence', string.format('%.0f', fence)) end
  if fresh then
    -- Every field is there from the start: a small hash is a list, and the fields in front are found first.
    set('life', life, 1)
    set('created_at', at, 9)
    set('dimension', '', 6)
    set('ttl', ttl, 7)
    set('expires_at', '', 8)
    set('forked_from', plan.origin or '', 11)
  end
  if plan.dimension and dimension == '' then set('dimension', plan.dimension, 6) end
  if undo then
    undo = sealed('undo', undo)
    add_to_parts(5, #undo - parts[5])
    set('undo', undo)
  end
  if plan.ttl then set('ttl', ttl, 7) end
  if ARGV[4] ~= '' then
    local place = kind == 'snapshot' and 1 or first  -- as _keys.lua says
    set('k' .. ARGV[4], keyed .. version .. ' ' .. place .. ' ' .. count .. ' ' .. ARGV[5])
    if count > 0 then set('t' .. (first + count - 1), ARGV[4]) end
  end
  if ttl ~= '' then
    set('expires_at', string.format('%.0f', now + tonumber(ttl) * 1000000), 8)
  elseif plan.ttl then
    set('expires_at', '', 8)
  end
  local forgets = version % PRUNED == 0 and version > REMEMBERED
  if forgets then add_to_parts(4, math.max(parts[4], version - REMEMBERED + 1) - parts[4]) end
  if fresh or parts_moved then set('parts', table.concat(parts, ' '), 12) end
  facts[2], facts[3], facts[4], facts[5], facts[10] = version_text, last_seq + count .. '', after, size + (plan.size or 0), at
  call('HSET', META, 'version', version_text, 'last_seq', facts[3], 'state', after, 'bytes', facts[5], 'changed_at', at,
       'check', check_of(facts), unpack(more))
  if forgets then forget_old_changes() end
  if version % PRUNED == 0 and fence and fence + REQUEST_LIFE * 1000 < now then call('HDEL', META, 'calls') end
  if ttl ~= '' and tonumber(ttl) < 1e10 then
    expire_parts()
  elseif plan.ttl then
    for i = 1, 6 do call('PERSIST', KEYS[i]) end
  end
  local receipt = at .. ' applied ' .. life .. ' ' .. version_text .. ' ' .. written
  if not plan.snapshot then return receipt end
  local _, _, _, messages = unpacked(after)
  return receipt .. ' ' .. plan.snapshot .. ' ' .. at .. ' ' .. messages .. (plan.label and '\n' .. plan.label or '')
end
