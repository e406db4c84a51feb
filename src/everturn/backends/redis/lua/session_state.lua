-- Read the facts of a session, its state now or at a snapshot or a version, and the ranges of its path. Writes nothing.
-- ARGV: 1 now ('': by the server's clock); 2 a snapshot's id; 3 a version; 4 whether to list the snapshots;
--   5 which others ('': none; 'b': summaries that stand for what a trim hid; 's', 't', 'r': all visible ones of that class);
--   6, 7 others and ranges from this seq ('': the head) down to that one (0: also hidden ranges);
--   8 ranges until they hold so many messages ('': all; '-': no ranges).
-- The answer: status; the facts; undo; forgotten; how many snapshots; the state asked for; the snapshots, unless they are too
-- many for one answer (page.lua lists those); the others; the ranges, the last one first; the head to go on from, or 0.
-- A part that is not as the facts say ends the script.
local MOST_SNAPSHOTS = 500  -- in one answer: half a millisecond
local facts = call('HMGET', META, unpack(FACTS))
if not facts[1] then
  if call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then return {'damaged'} end
  return {'no_session'}
end
if not sound(facts) then return {'damaged'} end
local now, ends = tonumber(ARGV[1]), whole(facts[8])
if ends then
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  if ends <= now then return {'no_session'} end
end
LIFE = facts[1]
local parts, version = parts_in(facts[12]), tonumber(facts[2])
ANY_JUMPS, ANY_OTHERS = parts[3] > 0, parts[1] > 0
if ANY_OTHERS and call('ZCARD', OTHERS) ~= parts[1] then damaged('others') end
if parts[2] > 0 and call('HLEN', SNAPSHOTS) ~= parts[2] then damaged('snapshots') end
if ANY_JUMPS and call('ZCARD', JUMPS) ~= parts[3] then damaged('jumps') end
if call('XLEN', CHANGES) ~= version - parts[4] + 1 then damaged('changes') end
local undo, forgotten = field('undo', parts[5]), field('forgotten', parts[6])

local state, status = facts[4], 'found'
if ARGV[2] ~= '' then
  state = snapshot_in(ARGV[2], parts[2])
  if not state then status = 'no_snapshot' end
elseif ARGV[3] == '0' then
  state = NOTHING
elseif ARGV[3] ~= '' then
  local asked = tonumber(ARGV[3])
  local row = call('XRANGE', CHANGES, ARGV[3] .. '-0', ARGV[3] .. '-0')[1]
  if row then
    local fields = row[2]
    local check, text = string.sub(fields[2], 1, 9), string.sub(fields[2], 10)
    fields[2] = text
    if check ~= change_check(asked, fields) or string.sub(fields[1], -#LIFE) ~= LIFE then damaged('changes') end
    state = string.match(text, '^%d+ %d+ %d+ (.*)$')
  elseif asked >= parts[4] and asked <= version then
    damaged('changes')
  else
    state = nil
  end
  for first, last in string.gmatch(forgotten, '(%d+)-(%d+)') do
    if tonumber(first) <= asked and asked <= tonumber(last) then state = nil end
  end
  if not state then status = 'no_version' end
end
if not state then return {status, facts, undo, forgotten, parts[2]} end
local head, cleared, floor, messages, kept = unpacked(state)
if not head or head > tonumber(facts[3]) or floor > head or cleared > floor then damaged('state') end
-- A jump that was moved to another seq may be missed where the path begins, and too much would show: so count messages.
if ANY_JUMPS and messages_behind(head, floor) + select(2, string.gsub(kept, '%d+', '')) ~= messages then damaged('jumps') end

local others, ranges, rest = {}, {}, 0
local low, high = tonumber(ARGV[7]), math.min(tonumber(ARGV[6]) or head, head)
if ANY_OTHERS and ARGV[5] ~= '' and ARGV[5] ~= 'b' then
  others_down(head, high, math.max(low, floor + 1), ARGV[5], others)
end
if ANY_OTHERS and (ARGV[5] == 'b' or ARGV[5] == 's') and cleared < floor then
  others_down(head, math.min(high, floor), math.max(low, cleared + 1), 's', others)
end
if ARGV[8] ~= '-' then
  ranges, rest = ranges_down(head, high, low == 0 and 1 or math.max(low, floor + 1), tonumber(ARGV[8]))
end
local listed = ARGV[4] ~= '' and parts[2] > 0 and parts[2] <= MOST_SNAPSHOTS
return {status, facts, undo, forgotten, parts[2], state, listed and call('HGETALL', SNAPSHOTS) or {},
        table.concat(others, ','), table.concat(ranges, ','), rest}
