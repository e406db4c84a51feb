-- Ends every change: writes what the effect's script has planned, and answers with the receipt. `kind` is that of the change,
-- `after` the new state; `plan` has the rest: entries, an undo step, a snapshot, facts, a TTL.
-- It is plain text, not a function, and its rare steps are no functions either: making a function takes the server longer than
-- a small step does. Turning a number into text is slow, too: each number is turned once, by `format`, in half the time of `..`.
local fresh = not life
if fresh then
  if ended then call('UNLINK', META, LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) end
  call('PERSIST', META)  -- a tombstone, or a lease without a session, becomes one
  life = ARGV[2]
  LIFE = life
end
version = version + 1
local undo = plan.undo
if plan.undoable then
  -- Before the first write: it ends the script if the undo steps are damaged.
  local steps = {}
  for step in string.gmatch(sealed_texts().field('undo', parts[5]), '[^;]+') do steps[#steps + 1] = step end
  local moved_to, _, _, shown = unpacked(after)
  local _, _, _, before = unpacked(state)
  steps[#steps + 1] = version .. ' ' .. kind .. ' ' .. moved_to .. ' ' .. (before - shown) .. ' ' .. state
  undo = table.concat(steps, ';', math.max(1, #steps - 9))
end
local first, written = plan.first or 0, plan.count or 0
if plan.write then plan.write(first) end
local version_text, receipt = string.format('%d', version), string.format('%d %d', first, written)
local row = {kind .. ' ' .. life, receipt .. ' ' .. at .. ' ' .. after, 'call', ARGV[1]}
if ARGV[4] ~= '' then
  row[5], row[6], row[7], row[8] = 'key', ARGV[4], 'content', ARGV[5]
end
if plan.snapshot then row[#row + 1], row[#row + 2] = 'snapshot', plan.snapshot end
if plan.label then row[#row + 1], row[#row + 2] = 'label', plan.label end
row[2] = change_check(version_text, row) .. row[2]
call('XADD', CHANGES, version_text .. '-0', unpack(row))

-- Five fields of meta change with every change. `more` are the fields that only some changes set.
local more = {}
local function set(name, value, place)
  more[#more + 1], more[#more + 2] = name, value
  if place then stored[place] = value end
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
  undo = sealed_texts().sealed('undo', undo)
  add_to_parts(5, #undo - parts[5])
  set('undo', undo)
end
if plan.facts then
  local kept = plan.facts ~= '' and sealed_texts().sealed('facts', plan.facts)
  parts[7], parts_moved = kept and #kept or parts[8] and 0 or nil, true
  if kept then set('facts', kept) else call('HDEL', META, 'facts') end
end
if plan.ttl then set('ttl', ttl, 7) end
if ARGV[4] ~= '' then
  local place = kind == 'snapshot' and 1 or first  -- as _keys.lua says
  set('k' .. ARGV[4], keyed .. version .. ' ' .. place .. ' ' .. written .. ' ' .. ARGV[5])
  if written > 0 then set('t' .. (first + written - 1), ARGV[4]) end
end
if ttl ~= '' then
  set('expires_at', string.format('%.0f', now + tonumber(ttl) * 1000000), 8)
elseif plan.ttl then
  set('expires_at', '', 8)
end
local REMEMBERED, PRUNED = 1024, 64
local prunes = version % PRUNED == 0
local last_forgotten = prunes and version > REMEMBERED and version - REMEMBERED
if last_forgotten then add_to_parts(4, math.max(parts[4], last_forgotten + 1) - parts[4]) end
if fresh or parts_moved then set('parts', table.concat(parts, ' '), 12) end
stored[2], stored[4], stored[10] = version_text, after, at
stored[3], stored[5] = string.format('%d', last_seq + written), string.format('%d', size + (plan.size or 0))
call('HSET', META, 'version', version_text, 'last_seq', stored[3], 'state', after, 'bytes', stored[5], 'changed_at', at,
     'check', (check_of(stored)), unpack(more))
if last_forgotten then
  -- Forget all but the latest changes. A request that one of them may have made is late from now on.
  for _, old in ipairs(call('XRANGE', CHANGES, '-', last_forgotten .. '-0')) do
    local change = change_in(old)
    if change.others.key then key_functions().forget_uses(change.others.key, last_forgotten) end
    fence = math.max(fence or 0, tonumber(change.at))
  end
  call('XTRIM', CHANGES, 'MINID', (last_forgotten + 1) .. '-0')
  if fence then call('HSET', META, 'fence', string.format('%.0f', fence)) end
end
if prunes and fence and fence + REQUEST_LIFE * 1000 < now then call('HDEL', META, 'calls') end
if ttl ~= '' and tonumber(ttl) < 1e10 then
  -- All parts expire at one moment, by the server's clock, because the server expires them.
  local clock = not_after == '' and tonumber(server_time()) or now
  local expiry = string.format('%.0f', math.floor((clock + tonumber(ttl) * 1000000) / 1000) + 1)
  for i = 1, 6 do call('PEXPIREAT', KEYS[i], expiry) end
elseif plan.ttl then
  for i = 1, 6 do call('PERSIST', KEYS[i]) end
end
receipt = at .. ' applied ' .. life .. ' ' .. version_text .. ' ' .. receipt
if plan.answer then return plan.answer(receipt) end
if not plan.snapshot then return receipt end
local _, _, _, shown = unpacked(after)
return receipt .. ' ' .. plan.snapshot .. ' ' .. at .. ' ' .. shown .. (plan.label and '\n' .. plan.label or '')
